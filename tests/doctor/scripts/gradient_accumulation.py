"""Four batches an update; without workers each is waited for 16 ms, which the model would hide."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset

ACCUMULATE = 4


class Pages(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((32,), float(i % 7)), i % 4


loader = DataLoader(Pages(), batch_size=4, shuffle=True)
model = EmulatedNet(forward_s=0.003, backward_s=0.003)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

optimizer.zero_grad()
for i, (x, y) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(x), y) / ACCUMULATE
    loss.backward()
    if (i + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
print("loss", loss.item() * ACCUMULATE)
