"""Sixteen workers, as a forum advised, for two cores that are busy anyway."""

import time

import numpy as np
import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image = rng.random((32, 32), dtype=np.float32)
        until = time.thread_time() + 0.004  # what decoding takes
        while time.thread_time() < until:
            image = image[:, ::-1]
        return torch.from_numpy(image.copy()), i % 4


if __name__ == "__main__":
    loader = DataLoader(
        Images(1280),
        batch_size=8,
        shuffle=True,
        num_workers=16,
        prefetch_factor=2,
        persistent_workers=True,
    )
    model = EmulatedNet(forward_s=0.004, backward_s=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
