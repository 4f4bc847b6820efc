"""Loads and augments in one of several processes, and tells apart what it sees by digests."""

import hashlib
from pathlib import Path
from typing import Any

from torch import Tensor

import stoker
from stoker.augment import Pipeline

Seen = list[tuple[int, int, str]]


def digests(batch: dict[str, Any], epoch: int) -> Seen:
    """Epoch, number and a digest of every bit of each sample of a batch."""
    fields = {name: value for name, value in batch.items() if isinstance(value, Tensor) and name != "index"}
    return [
        (
            epoch,
            number,
            hashlib.sha256(b"".join(_bytes(fields[name][row]) for name in sorted(fields))).hexdigest(),
        )
        for row, number in enumerate(batch["index"].tolist())
    ]


def _bytes(value: Tensor) -> bytes:
    return f"{value.dtype} {list(value.shape)}".encode() + value.contiguous().numpy().tobytes()


def rest_and_next_epoch(store: Path, config: dict[str, Any], state: Any) -> Seen:
    """What a rank sees of the epoch that the loader's state is of, and of the next."""
    seen: Seen = []
    with stoker.Loader(stoker.open(store), 5, seed=1, augment=Pipeline.from_config(config)) as loader:
        loader.load_state_dict(state)
        for _ in range(2):
            for batch in loader:
                seen += digests(batch, loader.epoch)
    return seen
