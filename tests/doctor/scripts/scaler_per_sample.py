"""A fitted StandardScaler is called for each sample; its checks cost more than the arithmetic."""

import numpy as np
import torch
from emulated import EmulatedNet
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset


class Gestures(Dataset):
    def __init__(self, x, y, scaler):
        self.x, self.y, self.scaler = x, y, scaler

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.scaler.transform(self.x[i][None])[0]
        return torch.tensor(x, dtype=torch.float32), torch.tensor(self.y[i])


x = np.random.randn(25600, 24)
y = np.random.randint(0, 4, 25600)
train_set = Gestures(x, y, StandardScaler().fit(x))
train_loader = DataLoader(train_set, batch_size=256, shuffle=True, num_workers=2, persistent_workers=True)
model = EmulatedNet(forward_s=0.004, backward_s=0.002)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(2):
    for features, labels in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
