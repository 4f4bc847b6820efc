"""Every value of every prediction is logged with .item(), one by one, at each step."""

import torch
from emulated import EmulatedNet
from torch.utils.data import DataLoader, TensorDataset


def log_predictions(history, logits, labels):
    for row in range(len(logits)):
        for column in range(logits.shape[1]):
            history.append((labels[row].item(), logits[row, column].item()))


def main():
    data = TensorDataset(torch.randn(8192, 32), torch.randint(0, 32, (8192,)))
    loader = DataLoader(data, batch_size=128, shuffle=True, num_workers=1, persistent_workers=True)
    model = EmulatedNet(forward_s=0.004, backward_s=0.002, classes=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        history = []
        for x, y in loader:
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log_predictions(history, logits.detach(), y)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(history)} values logged")


if __name__ == "__main__":
    main()
