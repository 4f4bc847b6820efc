"""Small training scripts for the doctor's tests, and a clock that stands still unless told."""

import textwrap
from pathlib import Path

START = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Rows(Dataset):
    def __init__(self, count=400, sleep=None):
        self.count, self.sleep = count, sleep
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if self.sleep:
            self.sleep(1)
        return torch.full((4,), float(index)), index % 2

class Net(nn.Module):
    def __init__(self, sleep=None):
        super().__init__()
        self.layer, self.sleep = nn.Linear(4, 2), sleep
    def forward(self, x):
        if self.sleep:
            self.sleep(3)
        return self.layer(x)

def step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""


class FakeClock:
    """Nanoseconds that pass only in `sleep`."""

    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        return self.time

    def sleep(self, milliseconds: float) -> None:
        self.time += round(milliseconds * 1_000_000)


def write_script(folder: Path, body: str, name: str = "train.py") -> list[str]:
    """A script with the classes above; what to run it with."""
    path = folder / name
    path.write_text(START + textwrap.dedent(body))
    return [str(path)]
