"""Runs many loader jobs in one process group, under torchrun.

    torchrun --nproc-per-node=N resumed_ranks.py JOBS OUT

JOBS is a JSON list of {"kind", "path", "batch_size", "state", "num_steps"}. Each rank writes
OUT.RANK: for each job what it saw, step by step, as [sample, first value] pairs, and the state then.
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import stoker


def open_loader(kind: str, path: str, batch_size: int) -> stoker.Loader:
    """A loader of one of the orders or sources that a run may be resumed in."""
    store = stoker.open(path)
    if kind == "windows":
        view = stoker.windows(store, length=20, stride=15, jitter=5, fields=["x"])
        return stoker.Loader(view, batch_size, seed=1, num_workers=1)
    if kind == "quasi":
        return stoker.Loader(store, batch_size, shuffle="quasi", seed=1, num_workers=1, run_length=3, pool=2)
    return stoker.Loader(store, batch_size, seed=1, num_workers=1)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """What this rank sees of one job."""
    with open_loader(job["kind"], job["path"], job["batch_size"]) as loader:
        if job["state"] is not None:
            loader.load_state_dict(job["state"])
        seen = []
        if job["num_steps"] != 0:
            for batch in itertools.islice(loader, job["num_steps"]):
                first = batch["x"].flatten(1)[:, 0]
                seen.append(
                    [list(pair) for pair in zip(batch["index"].tolist(), first.tolist(), strict=True)]
                )
                dist.barrier()  # a rank with fewer steps than others would leave them waiting here
        return {"seen": seen, "state": loader.state_dict()}


if __name__ == "__main__":
    jobs, out = sys.argv[1:]
    dist.init_process_group("gloo")
    results = [run(job) for job in json.loads(Path(jobs).read_text())]
    Path(f"{out}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.destroy_process_group()
