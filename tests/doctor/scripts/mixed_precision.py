"""Autocast to bfloat16; the model takes 35 ms a step and is fed well."""

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, TensorDataset


def main():
    data = TensorDataset(torch.randn(1024, 3, 8, 8), torch.randint(0, 4, (1024,)))
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1, pin_memory=False)
    model = EmulatedNet(forward_s=0.020, backward_s=0.015, features=192)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
            loss = torch.nn.functional.cross_entropy(logits, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"loss {loss.item():.3f}, logits in {logits.dtype}")


if __name__ == "__main__":
    main()
