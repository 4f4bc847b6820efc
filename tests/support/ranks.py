"""Ranks of one process group: real processes, forked from this one, which has imported torch already.

That torchrun's own environment is understood is shown by tests/train and by ``stoker train``.
"""

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes


def run_ranks(num_ranks: int, work: Callable[[], Any]) -> list[Any]:
    """What every rank returns, through JSON; an exception of any of them is raised, with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_rank, (num_ranks, Path(folder), work), num_ranks, start_method="fork")  # type: ignore[no-untyped-call]
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(num_ranks)]


def _rank(rank: int, num_ranks: int, folder: Path, work: Callable[[], Any]) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'group'}",
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(minutes=4),
    )
    (folder / f"{rank}.json").write_text(json.dumps(work()))
    dist.destroy_process_group()
