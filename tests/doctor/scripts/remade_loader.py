"""Each epoch of eight steps has a DataLoader of its own: its workers open their files anew (0.2 s)."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Sessions(Dataset):
    def __init__(self):
        self.index = None

    def __len__(self):
        return 64

    def open(self):
        time.sleep(0.2)
        self.index = torch.eye(len(self))[:, :32]

    def __getitem__(self, i):
        if self.index is None:
            self.open()
        return self.index[i], i % 4


def train_one_epoch(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    sessions = Sessions()
    model = EmulatedNet(forward_s=0.010, backward_s=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(16):
        loader = DataLoader(sessions, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
        print(epoch, train_one_epoch(model, loader, optimizer))


if __name__ == "__main__":
    main()
