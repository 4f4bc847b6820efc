"""The same slow decoding, 12 ms a sample, is done again in every epoch, though it gives the same."""

import time

import numpy as np
import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


def decode(seed):
    rng = np.random.default_rng(seed)
    until = time.thread_time() + 0.012
    while time.thread_time() < until:
        picture = rng.random((16, 16), dtype=np.float32)
        rng = np.random.default_rng(seed)
    return picture


class Pictures(Dataset):
    def __init__(self, seeds):
        self.seeds = seeds

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, i):
        return torch.from_numpy(decode(self.seeds[i])), i % 4


if __name__ == "__main__":
    loader = DataLoader(
        Pictures(range(64)), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = EmulatedNet(forward_s=0.006, backward_s=0.004)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(20):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
