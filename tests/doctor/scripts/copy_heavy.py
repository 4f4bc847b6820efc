"""Volumes that NumPy made are in double precision: 125 MB are converted and copied for every step."""

import numpy as np
import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Volumes(Dataset):
    def __init__(self, count=2, side=250):
        self.volumes = [torch.from_numpy(np.random.rand(1, side, side, side)) for _ in range(count)]

    def __len__(self):
        return 160

    def __getitem__(self, i):
        return self.volumes[i % len(self.volumes)], torch.tensor([i % 4])


loader = DataLoader(Volumes(), batch_size=None)
model = EmulatedNet(forward_s=0.002, backward_s=0.001).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for volume, label in loader:
    volume = volume.to(device, torch.float32, copy=True)
    label = label.to(device)
    loss = torch.nn.functional.cross_entropy(model(volume), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
