"""Loads and augments the rest of an epoch, and all of the next, in one of several processes.

    torchrun --nproc-per-node=N augmented_ranks.py STORE CONFIG STATE OUT

CONFIG is the pipeline's settings file, STATE a loader's state as JSON. Each rank writes OUT.RANK: a
JSON list of [epoch, sample, digest of all fields] for what it saw.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
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


if __name__ == "__main__":
    store, config, state, out = sys.argv[1:]
    dist.init_process_group("gloo")
    seen: Seen = []
    with stoker.Loader(stoker.open(store), 5, seed=1, augment=Pipeline.from_config(config)) as loader:
        loader.load_state_dict(json.loads(Path(state).read_text()))
        for _ in range(2):
            for batch in loader:
                seen += digests(batch, loader.epoch)
    Path(f"{out}.{dist.get_rank()}").write_text(json.dumps(seen))
    dist.destroy_process_group()
