"""What a sample costs, and which part of it costs most."""

from dataclasses import dataclass

import numpy as np

from stoker.doctor._record import Batch, Loader, Record, Trial, with_queues
from stoker.doctor.analysis._fit import normal_batches
from stoker.doctor.analysis._lines import Hot, making_lines
from stoker.doctor.analysis._model import Model

_CHAINS = ("Compose", "Sequential", "Pipeline")  # hold other transforms: their time is that of their parts


@dataclass(frozen=True)
class Cost:
    """Of one batch of the training loader, in seconds, as far as it was seen."""

    num_samples: float
    sample_s: float  # wall time of one sample
    transforms: dict[str, float]  # wall seconds a sample, by name, the costliest first
    fetch_s: float  # wall, a batch: samples with their transforms
    collate_s: float
    transfer_s: float  # through the workers' queue; 0 without workers
    storage_s: float  # of fetch_s: neither on the processor nor waiting for one
    lines: list[Hot]  # of the code that makes samples

    @property
    def total_s(self) -> float:
        return max(self.fetch_s + self.collate_s + self.transfer_s, 1e-12)


def cost_of(record: Record, loader: Loader, trial: Trial | None, model: Model | None) -> Cost | None:
    """None where no batch was seen being made, and no sample was tried."""
    batches = normal_batches(record, loader)
    if batches:
        nums = [batch.num_samples for batch in batches if batch.num_samples]
        num = float(np.mean(nums)) if nums else float(loader.batch_size or 1)
        fetch, collate = (
            float(np.mean([getattr(b, key) for b in batches])) for key in ("fetch_s", "collate_s")
        )
        names = {name for batch in batches for name in batch.transforms}
        seen = {
            name: float(np.mean([batch.transforms.get(name, 0.0) for batch in batches])) / num
            for name in names
        }
    elif trial is not None:
        num = float(loader.batch_size or 1)
        fetch, collate, seen = trial.seconds_per_sample * num, trial.collate_s_per_batch, {}
    else:
        return None
    sample = fetch / max(num, 1.0)
    if not seen and trial is not None and trial.seconds_per_sample > 0:
        # seen alone, on a machine at rest: as shares they hold among the workers, too
        seen = {
            name: seconds / trial.seconds_per_sample * sample for name, seconds in trial.transforms.items()
        }
    storage = 0.0
    if model is not None:
        storage = min(fetch, float(np.mean([wait for wait, _ in model.jobs])) * model.job_scale)
    told = _stored_s(batches)
    if told is not None:
        storage = min(fetch, told)
    return Cost(
        num_samples=num,
        sample_s=sample,
        transforms=_leaves(seen),
        fetch_s=fetch,
        collate_s=collate,
        transfer_s=2 * model.send_s if model is not None and loader.num_workers else 0.0,
        storage_s=storage,
        lines=making_lines(record),
    )


def _stored_s(batches: list[Batch]) -> float | None:
    """Mean seconds in which a batch waited for files or locks; None where it is not told from cores."""
    told = with_queues(batches)
    if not told:
        return None
    spent = [batch.fetch_cpu_s + batch.collate_cpu_s + (batch.queued_s or 0.0) for batch in told]
    each = zip(told, spent, strict=True)
    return float(np.mean([max(0.0, batch.fetch_s + batch.collate_s - busy) for batch, busy in each]))


def _leaves(transforms: dict[str, float]) -> dict[str, float]:
    leaves = {name: seconds for name, seconds in transforms.items() if not name.endswith(_CHAINS)}
    return dict(sorted((leaves or transforms).items(), key=lambda item: -item[1]))
