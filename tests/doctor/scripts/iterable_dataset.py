"""A stream that gives a sample every 4 ms, read in the process that trains."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class EventStream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.count, step):
            time.sleep(0.004)  # the next event arrives
            yield torch.full((32,), float(i % 5)), i % 4


def main():
    loader = DataLoader(EventStream(1200), batch_size=8)
    model = EmulatedNet(forward_s=0.010, backward_s=0.005)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step}: {loss.item():.4f}")


main()
