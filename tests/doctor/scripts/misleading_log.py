"""The log divides the data set's length by the time since the epoch began, so "throughput" falls."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(2400, 32), torch.randint(0, 4, (2400,)))
loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
model = EmulatedNet(forward_s=0.020, backward_s=0.010)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(1):
    begin = time.time()
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            speed = len(dataset) / (time.time() - begin)
            print(f"epoch {epoch} step {step} loss {loss.item():.3f} throughput {speed:.0f} samples/s")
