"""Training waits for a transform (6 ms a sample); validation, after each epoch, for its collation."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset, default_collate


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Denoise:
    def __call__(self, x):
        until = time.thread_time() + 0.006
        while time.thread_time() < until:
            x = x.roll(1)
        return x


class Flip:
    def __call__(self, x):
        return x.flip(0) if torch.rand(1) < 0.5 else x


class Signals(Dataset):
    def __init__(self, count, transform=None):
        self.x, self.transform = torch.randn(count, 32), transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return (x if self.transform is None else self.transform(x)), i % 4


def slow_collate(batch):
    until = time.thread_time() + 0.03
    while time.thread_time() < until:
        collated = default_collate(batch)
    return collated


train_set = Signals(160, Compose(Flip(), Denoise()))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
val_loader = DataLoader(Signals(32), batch_size=8, collate_fn=slow_collate)
model = EmulatedNet(forward_s=0.006, backward_s=0.004)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(8):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
    print(f"epoch {epoch}: accuracy {right / len(val_loader.dataset):.2f}")
