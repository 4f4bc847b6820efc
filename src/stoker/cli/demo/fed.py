"""The same training, fed: signals come prepared out of a store, and are augmented in whole batches."""

import argparse

import numpy as np
import torch
from network import DEVICE, make_network
from torch import nn

import stoker
from stoker.augment import Pipeline
from stoker.augment.signal import AmplitudeScale, FrequencyMask, GaussianNoise, Speed, TimeMask, TimeShift

augment = Pipeline(
    TimeShift(0.1, unit="fraction", p=0.5),
    Speed((0.9, 1.1), p=0.5),
    AmplitudeScale((0.8, 1.2)),
    GaussianNoise((15, 30), p=0.5),
    TimeMask(0.1, unit="fraction", p=0.5),
    FrequencyMask(0.1, p=0.3),
    roles={"x": "signal"},
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()

    train_loader = stoker.Loader(stoker.open(args.store), batch_size=32, drop_last=True, device=DEVICE)
    model = make_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    while len(losses) < args.steps:
        for batch in train_loader:
            batch = augment(batch, epoch=train_loader.epoch)
            loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == args.steps:
                break
    first, last = np.mean(losses[:10]), np.mean(losses[-10:])
    print(f"loss of the first ten steps {first:.3f}, of the last ten {last:.3f}")


if __name__ == "__main__":
    main()
