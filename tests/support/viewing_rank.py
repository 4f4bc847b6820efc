"""Trains on views of a store in one of several processes, and writes what it was shown.

python viewing_rank.py STORE VIEWS RANK WORLD_SIZE EPOCHS
"""

import json
import logging
import sys
from pathlib import Path

import stoker

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.slow_augment import watched

Shown = list[list[float]]


def shown(store: str, views: str, rank: int = 0, world_size: int = 1, epochs: int = 1) -> Shown:
    """The number and the sum of every sample, in order."""
    with (
        stoker.ViewCache(stoker.open(store), watched, views, batch_size=8, workers=2) as cache,
        stoker.Loader(cache, 6, rank=rank, world_size=world_size) as loader,
    ):
        return [
            [number, float(value)]
            for _ in range(epochs)
            for batch in loader
            for number, value in zip(batch["index"].tolist(), batch["x"].double().sum((1, 2)), strict=True)
        ]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.stdout.write(json.dumps(shown(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))))
