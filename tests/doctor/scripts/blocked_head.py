"""On average the workers are fast enough, but every eighth batch has a sample that takes 0.4 s."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, count=512):
        self.values = torch.randn(count, 32)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        is_huge = i % 32 == 31
        time.sleep(0.4 if is_huge else 0.001)
        return self.values[i], i % 4


scans = Scans()
loader = DataLoader(scans, batch_size=4, num_workers=4, persistent_workers=True)
model = EmulatedNet(forward_s=0.010, backward_s=0.005)
optimizer = torch.optim.Adam(model.parameters())

for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}")
