"""Samples are free; padding them to a batch costs 50 ms of processor time."""

import time

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, count=2560):
        self.sentences = [torch.randint(1, 100, (16 + i % 16,)) for i in range(count)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        return self.sentences[i], i % 4


def pad_by_hand(batch):
    longest = max(len(tokens) for tokens, _ in batch)
    padded = torch.zeros(len(batch), longest)
    until = time.thread_time() + 0.050
    while time.thread_time() < until:
        for row, (tokens, _) in enumerate(batch):
            padded[row, : len(tokens)] = tokens
    return padded, torch.tensor([label for _, label in batch])


loader = DataLoader(
    Sentences(), batch_size=16, shuffle=True, num_workers=2, collate_fn=pad_by_hand, drop_last=True
)
model = EmulatedNet(forward_s=0.006, backward_s=0.004)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step, (tokens, labels) in enumerate(loader):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(tokens), labels)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
