"""A compiled model; what is slow is a transform, 30 ms of every batch, without workers."""

import time

import torch
from emulated import EmulatedNet
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectrogram:
    def __call__(self, x):
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            spectrum = torch.fft.rfft(x).abs()
        return spectrum


class Chain:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for t in self.transforms:
            x = t(x)
        return x


class Clips(Dataset):
    def __init__(self, transform):
        self.clips = torch.randn(900, 64)
        self.transform = transform

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return self.transform(self.clips[i]), i % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(33, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.device = torch.compiler.disable(EmulatedNet(forward_s=0.006, backward_s=0.004))

    def forward(self, x):
        return self.device(self.body(x))


loader = DataLoader(Clips(Chain([Spectrogram(), torch.log1p])), batch_size=6, shuffle=True)
model = torch.compile(Net(), backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
