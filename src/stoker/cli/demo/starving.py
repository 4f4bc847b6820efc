"""Heart sounds, trained as it is usually written: every sample is read, filtered and augmented when its turn
comes, again in every epoch, while the accelerator waits."""

import argparse
from pathlib import Path

import numpy as np
import scipy.signal
import soundfile
import torch
from network import DEVICE, make_network
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, LENGTH = 2000, 4000  # Hz; samples of a signal


class HeartSounds(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*/*.wav"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        signal, rate = soundfile.read(self.files[i], dtype="float32")
        signal = augment(prepare(signal, rate))
        return torch.from_numpy(signal[None]), self.classes.index(self.files[i].parent.name)


def prepare(signal, rate):
    signal = scipy.signal.resample_poly(signal, RATE, rate)
    band = scipy.signal.butter(4, [25, 400], "bandpass", fs=RATE, output="sos")
    signal = scipy.signal.sosfiltfilt(band, signal)
    signal = (signal - signal.mean()) / signal.std()
    return np.resize(signal, LENGTH)  # cut, or repeated to the length


def augment(x):
    if np.random.rand() < 0.5:  # shift by up to a tenth
        x = np.roll(x, np.random.randint(-LENGTH // 10, LENGTH // 10 + 1))
    if np.random.rand() < 0.5:  # play it faster or slower
        middle, rate = LENGTH / 2, np.random.uniform(0.9, 1.1)
        x = np.interp((np.arange(LENGTH) - middle) * rate + middle, np.arange(LENGTH), x)
    x = x * np.random.uniform(0.8, 1.2)
    if np.random.rand() < 0.5:  # noise at 15 to 30 dB
        level = np.std(x) * 10 ** (-np.random.uniform(15, 30) / 20)
        x = x + level * np.random.randn(LENGTH)
    if np.random.rand() < 0.5:  # hide a stretch of time
        length = np.random.randint(0, LENGTH // 10)
        start = np.random.randint(0, LENGTH - length)
        x[start : start + length] = 0
    if np.random.rand() < 0.3:  # and a band of frequencies
        spectrum = np.fft.rfft(x)
        width = np.random.randint(0, len(spectrum) // 10)
        start = np.random.randint(0, len(spectrum) - width)
        spectrum[start : start + width] = 0
        x = np.fft.irfft(spectrum, LENGTH)
    return x.astype(np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()

    train_loader = DataLoader(
        HeartSounds(args.recordings),
        batch_size=32,
        shuffle=True,
        drop_last=True,
        num_workers=args.num_workers,
    )
    model = make_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    while len(losses) < args.steps:
        for x, y in train_loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == args.steps:
                break
    first, last = np.mean(losses[:10]), np.mean(losses[-10:])
    print(f"loss of the first ten steps {first:.3f}, of the last ten {last:.3f}")


if __name__ == "__main__":
    main()
