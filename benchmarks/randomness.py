"""How random are the loader's orders, against drawing samples at random?

Data sorted by class is the worst case: an order that keeps neighbours together shows it at once.
For each order:

- class mix: how far the classes of a batch are from those of the data (total variation distance,
  mean over batches; 0: every batch is like the data; what chance alone gives is numpy's row);
- neighbours: how often two neighbouring samples fall into one batch, as a multiple of chance;
- spread: mean distance between a sample's place in the data and in the epoch, as a part of what
  chance gives (a third of the data's length);
- epochs alike: correlation of a sample's places in two epochs.

No clock is involved: the figures are the same on every machine.
"""

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from measuring import Report
from stoker.loader._order import Order, QuasiRandom, Sequential, Shuffled

NUM_SAMPLES, BATCH_SIZE, NUM_CLASSES, EPOCHS = 100_000, 64, 10, 5

Numbers = NDArray[np.int64]


def main() -> None:
    """Measure every order and write the report."""
    report = Report("randomness", ("stoker", "numpy"))
    workload = f"{NUM_SAMPLES} samples in {NUM_CLASSES} sorted classes, batches of {BATCH_SIZE}"
    for name, order in _orders().items():
        epochs = [order(epoch) for epoch in range(EPOCHS)]
        report.add(workload, f"{name}: class mix", [_class_mix(epoch) for epoch in epochs], "distance")
        report.add(workload, f"{name}: neighbours in one batch", [_neighbours(e) for e in epochs], "x chance")
        report.add(workload, f"{name}: spread", [_spread(epoch) for epoch in epochs], "x chance")
        alike = [_alike(a, b) for a, b in itertools.pairwise(epochs)]
        report.add(workload, f"{name}: epochs alike", alike, "correlation")
    report.write()


def _orders() -> dict[str, Callable[[int], Numbers]]:
    def by(order: Order) -> Callable[[int], Numbers]:
        return lambda epoch: order.at(epoch, np.arange(NUM_SAMPLES))

    orders = {
        "numpy.random.permutation": lambda epoch: np.random.default_rng(epoch).permutation(NUM_SAMPLES),
        "shuffle=True": by(Shuffled(NUM_SAMPLES, seed=0)),
    }
    for run_length, pool in ((64, 256), (64, 64), (256, 64), (1024, 16)):
        title = f'shuffle="quasi", run_length={run_length}, pool={pool}'
        orders[title] = by(QuasiRandom(NUM_SAMPLES, 0, run_length=run_length, pool=pool))
    return {**orders, "shuffle=False": by(Sequential(NUM_SAMPLES))}


def _class_mix(order: Numbers) -> float:
    classes = (order * NUM_CLASSES // NUM_SAMPLES)[: NUM_SAMPLES // BATCH_SIZE * BATCH_SIZE]
    batches = classes.reshape(-1, BATCH_SIZE)
    shares = np.stack([(batches == number).mean(axis=1) for number in range(NUM_CLASSES)], axis=1)
    return float(np.abs(shares - 1 / NUM_CLASSES).sum(axis=1).mean() / 2)


def _neighbours(order: Numbers) -> float:
    batch_of = np.empty(NUM_SAMPLES, np.int64)
    batch_of[order] = np.arange(NUM_SAMPLES) // BATCH_SIZE
    return float((batch_of[1:] == batch_of[:-1]).mean() / ((BATCH_SIZE - 1) / (NUM_SAMPLES - 1)))


def _spread(order: Numbers) -> float:
    return float(np.abs(order - np.arange(NUM_SAMPLES)).mean() / (NUM_SAMPLES / 3))


def _alike(one: Numbers, other: Numbers) -> float:
    return float(np.corrcoef(np.argsort(one), np.argsort(other))[0, 1])


if __name__ == "__main__":
    main()
