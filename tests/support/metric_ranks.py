"""Measures data that is shared unevenly among ranks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from stoker.train._metrics import classification_metrics, regression_metrics, segmentation_metrics

COUNT = 37


def jobs() -> dict[str, tuple[Callable[[], Any], torch.Tensor, torch.Tensor]]:
    """A maker of each metric, with predictions and targets."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(COUNT, 3, 4, generator=generator)
    classes = torch.randint(0, 3, (COUNT, 4), generator=generator)
    made: dict[str, tuple[Callable[[], Any], torch.Tensor, torch.Tensor]] = {}
    for exact in (False, True):
        for name, maker, prediction, target in [
            ("regression", lambda e=exact: regression_metrics(3, exact=e), logits, logits.roll(1, 0) + 1e4),
            ("classes", lambda e=exact: classification_metrics(3, exact=e), logits, classes),
            ("binary", lambda e=exact: classification_metrics(2, exact=e), logits[:, 0], classes % 2),
            ("masks", lambda e=exact: segmentation_metrics(3, ignore=2, exact=e), logits, classes),
        ]:
            made[f"{name} exact={exact}"] = (maker, prediction, target)
    return made


def shares(rank: int, world_size: int) -> list[slice]:
    """Batches of 5 in turn; the last is smaller and only some ranks get one of the last round."""
    batches = [slice(start, min(start + 5, COUNT)) for start in range(0, COUNT, 5)]
    return batches[rank::world_size]


def values(metric: Any) -> dict[str, float]:
    """What it computes, as numbers."""
    return {name: float(value) for name, value in metric.compute().items()}


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """For each metric what all ranks together compute, with data on the last rank only, and one process."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    results = {}
    for name, (maker, prediction, target) in jobs().items():
        shared, lonely, whole = maker(), maker(), maker()
        for share in shares(rank, world_size):
            shared.update(prediction[share], target[share])
        if rank == world_size - 1:
            lonely.update(prediction, target)
        results[name] = {"shared": values(shared), "lonely": values(lonely), "again": values(shared)}
        whole.sync_on_compute = False
        whole._to_sync = False
        whole.update(prediction, target)
        results[name]["whole"] = values(whole)
        if name == "binary exact=False":
            results[name]["threshold"] = {"all": shared.threshold_at(maximise="youden")[0]}
    return results
