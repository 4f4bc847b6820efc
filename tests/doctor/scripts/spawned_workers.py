"""Workers that are spawned, not forked, wait for a transform of 8 ms a sample."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Resample:
    def __call__(self, x):
        until = time.thread_time() + 0.008
        while time.thread_time() < until:
            x = torch.nn.functional.interpolate(x[None, None], size=32)[0, 0]
        return x


class Standardize:
    def __call__(self, x):
        return (x - x.mean()) / x.std()


class Sequence:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Tracks(Dataset):
    def __init__(self, count):
        self.tracks = torch.randn(count, 64)
        self.transform = Sequence([Resample(), Standardize()])

    def __len__(self):
        return len(self.tracks)

    def __getitem__(self, i):
        return self.transform(self.tracks[i]), i % 4


if __name__ == "__main__":
    loader = DataLoader(
        Tracks(480),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = EmulatedNet(forward_s=0.006, backward_s=0.004)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
