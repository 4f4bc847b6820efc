"""Only counts the labels of its data set; there is no training here."""

from collections import Counter

import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(512, 8), torch.randint(0, 4, (512,)))
loader = DataLoader(dataset, batch_size=32)

counts = Counter()
for _, labels in loader:
    counts.update(labels.tolist())
print("samples by label:", dict(sorted(counts.items())))
