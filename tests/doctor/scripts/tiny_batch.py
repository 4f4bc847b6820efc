"""Two samples a batch for a deep and narrow network: a step is all Python and operator calls."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(2000, 16), torch.randint(0, 4, (2000,))
loader = DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True)

layers = []
for _ in range(12):
    layers += [nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU()]
net = nn.Sequential(*layers, nn.Linear(16, 4))
opt = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
loss_fn = nn.CrossEntropyLoss()

for i, (inputs, labels) in enumerate(loader):
    opt.zero_grad()
    outputs = net(inputs)
    loss = loss_fn(outputs, labels)
    loss.backward()
    opt.step()
    if i % 100 == 0:
        print(i, loss.item())
    if i == 600:
        break
