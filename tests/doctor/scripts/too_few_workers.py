"""No workers: samples that are cheap enough for one worker to hide are made between the steps."""

import time

import numpy as np
import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Windows of a long signal, each with its spectrum: 3 ms of processor time."""

    def __init__(self, signal, length=128):
        self.signal, self.length = signal, length

    def __len__(self):
        return len(self.signal) // self.length

    def __getitem__(self, i):
        window = self.signal[i * self.length : (i + 1) * self.length]
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            spectrum = np.abs(np.fft.rfft(window))
        return torch.tensor(spectrum, dtype=torch.float32), i % 4


def main():
    windows = Windows(np.random.randn(128 * 640))
    train_loader = DataLoader(windows, batch_size=8, shuffle=True)
    model = EmulatedNet(forward_s=0.020, backward_s=0.010)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = torch.nn.CrossEntropyLoss()
    for epoch in range(2):
        running = 0.0
        for spectra, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(spectra), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"[{epoch + 1}] loss: {running / len(train_loader):.3f}")


if __name__ == "__main__":
    main()
