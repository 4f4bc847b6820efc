"""One file in the middle of the epoch is broken, so a worker raises and training ends."""

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, Dataset


class Cases(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        if i == 240:
            raise ValueError("case_240.nii is not a NIfTI file")
        return torch.full((32,), float(i % 3)), i % 4


if __name__ == "__main__":
    loader = DataLoader(Cases(), batch_size=8, num_workers=2)
    model = EmulatedNet(forward_s=0.010, backward_s=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
