"""A loader's job, done by each rank of a process group."""

import itertools
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
    """What this rank sees of a {"kind", "path", "batch_size", "state", "num_steps"}, and the state then.

    Step by step, as [sample, first value] pairs.
    """
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
