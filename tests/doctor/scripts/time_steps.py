"""A recurrent scan written as a Python loop over 150 time steps: thousands of tiny operators."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SelectiveScan(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inputs, self.gate, self.state = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            gate = torch.sigmoid(self.gate(x[:, t]))
            state = gate * state + (1 - gate) * torch.tanh(self.inputs(x[:, t]) + self.state(state))
            outputs.append(state)
        return torch.stack(outputs, 1)


class Classifier(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.scan = SelectiveScan(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.scan(self.embed(x)).mean(1))


torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(1024, 150, 1), torch.randint(0, 2, (1024,))
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(1):
    for signal, label in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(signal), label)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
