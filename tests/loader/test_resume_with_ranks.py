"""Resuming at every step on one, then two, then three real processes."""

from typing import Any

import numpy as np
import pytest

import stoker
from support.ranks import run_ranks
from support.resumed_ranks import open_loader, run

COUNT = 17
BATCH_SIZES = {1: 4, 2: 3, 3: 2}  # by number of ranks

Job = dict[str, Any]
Seen = list[list[float]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A store of samples, and one of sessions with as many windows."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 50)).astype(np.float32)} for _ in range(COUNT)]
    sessions = [{"x": rng.standard_normal((2, length)).astype(np.float32)} for length in (20, 125, 130)]
    stoker.pack(samples, folder / "samples.stoker", workers=0, shard_bytes=800)
    stoker.pack(sessions, folder / "sessions.stoker", workers=0)
    by_kind = {"shuffled": "samples", "quasi": "samples", "windows": "sessions"}
    return {kind: str(folder / f"{name}.stoker") for kind, name in by_kind.items()}


def run_jobs(num_ranks: int, jobs: list[Job]) -> list[tuple[Seen, Any]]:
    """For each job what all ranks together saw, in the epoch's order, and the state they agree on."""
    by_rank = run_ranks(num_ranks, lambda: [run(job) for job in jobs])
    merged = []
    for results in zip(*by_rank, strict=True):
        assert all(result["state"] == results[0]["state"] for result in results)
        steps = zip(*(result["seen"] for result in results), strict=True)
        merged.append(([pair for step in steps for part in step for pair in part], results[0]["state"]))
    return merged


def test_every_step_can_be_resumed_on_other_numbers_of_processes(paths: dict[str, str]) -> None:
    def job(kind: str, ranks: int, state: Any, num_steps: int | None) -> Job:
        size = BATCH_SIZES[ranks]
        return {"kind": kind, "path": paths[kind], "batch_size": size, "state": state, "num_steps": num_steps}

    whole = {kind: whole_epoch(kind, path) for kind, path in paths.items()}
    first = [(kind, job(kind, 1, None, steps)) for kind in paths for steps in range(5)]
    by_one = run_jobs(1, [each for _, each in first])
    second = [
        (kind, seen, job(kind, 2, state, steps))
        for (kind, _), (seen, state) in zip(first, by_one, strict=True)
        for steps in range(4)
    ]
    by_two = run_jobs(2, [each for _, _, each in second])
    third = [
        (kind, seen + more, job(kind, 3, state, None))
        for (kind, seen, _), (more, state) in zip(second, by_two, strict=True)
    ]
    by_three = run_jobs(3, [each for _, _, each in third])
    for (kind, seen, _), (more, state) in zip(third, by_three, strict=True):
        assert (seen + more)[:COUNT] == whole[kind]  # behind it, what fills the last step
        assert len(seen + more) < COUNT + 3
        assert state["consumed"] == COUNT


def whole_epoch(kind: str, path: str) -> Seen:
    with open_loader(kind, path, COUNT) as loader:
        (batch,) = loader
        assert len(batch["index"]) == COUNT
        return [
            [sample, first]
            for sample, first in zip(
                batch["index"].tolist(), batch["x"].flatten(1)[:, 0].tolist(), strict=True
            )
        ]
