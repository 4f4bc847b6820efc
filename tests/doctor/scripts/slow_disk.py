"""Each file takes 5 ms to arrive, as from a network share; nothing else costs anything."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


def read_from_share(path):
    time.sleep(0.005)  # the share's latency
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.float32)


class Files(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.bin"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path = self.paths[i]
        return torch.from_numpy(read_from_share(path).copy()), int(path.stem) % 4


def train(folder):
    loader = DataLoader(Files(folder), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = EmulatedNet(forward_s=0.008, backward_s=0.004)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(8):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "done")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for i in range(320):
            Path(folder, f"{i}.bin").write_bytes(np.random.randn(64).astype(np.float32).tobytes())
        train(folder)
