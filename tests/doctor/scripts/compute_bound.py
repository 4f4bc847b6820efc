"""The model takes 40 ms a step; its data are there long before."""

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(2048, 32), torch.randint(0, 4, (2048,)))
loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
model = EmulatedNet(forward_s=0.025, backward_s=0.015)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)

for epoch in range(1):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(f"epoch {epoch} loss {loss.item():.3f}")
