"""Changes that take more than a setting: cache, pack, move to the device, rewrite a line."""

import re
from dataclasses import dataclass, replace

from stoker.doctor._diagnosis import Advice, Cause, Interval
from stoker.doctor._record import Loader, Trial
from stoker.doctor._words import count, duration, percent, size
from stoker.doctor.analysis._causes import Blame, Case
from stoker.doctor.analysis._cost import Cost
from stoker.doctor.analysis._fit import normal_batches
from stoker.doctor.analysis._forecast import Forecast
from stoker.doctor.analysis._model import Model, Setting

_READ_BYTES_PER_S = 2e9  # a packed store's gather on one thread, well below what its benchmark shows
_READ_SAMPLE_S = 5e-6
# how much faster batched augmentation is than one sample after another: at least, likely, at best
_BATCHED = (3.0, 8.0, 25.0)
_SCALING = re.compile(r"scal(e|er|ing)\b|normali[sz]|standardi[sz]|StandardScaler|MinMax", re.IGNORECASE)


@dataclass(frozen=True)
class Cached:
    """The setting with all samples kept in memory, and how much that is."""

    setting: Setting
    num_bytes: int


def cached_setting(case: Case, model: Model) -> Cached | None:
    """None where samples differ from time to time, or don't fit into half of the free memory."""
    loader, trial = case.loader, case.timing.trial
    if loader is None or trial is None or not trial.is_deterministic or not loader.num_samples:
        return None
    if loader.is_iterable or loader.is_made_anew:  # with which the cache would be made anew, and empty
        return None
    num_bytes = loader.num_samples * trial.bytes_per_sample
    used = max((moment.memory_bytes for moment in case.record.moments), default=0)
    if num_bytes > 0.5 * (case.record.machine.memory_bytes - used):
        return None
    return Cached(_stored(loader, trial, model, kept=_collating(case, loader)), num_bytes)


def data_remedies(case: Case, blamed: Blame, predicted: Forecast) -> list[Advice]:
    """Cures for the cost of a sample."""
    loader, trial, cost = case.loader, case.timing.trial, case.cost
    if loader is None or cost is None or case.shares.input < 0.03:
        return []
    found = []
    cached = cached_setting(case, predicted.model)
    if cached is not None:
        found.append(
            Advice(
                key="cache",
                action=f"Keep the samples of {loader.dataset} in memory after the first epoch.",
                reason=f"A sample is the same each time it is made; all {count(loader.num_samples or 0)} "
                f"take {size(cached.num_bytes)}. The gain begins with the second epoch.",
                speedup=predicted.speedup(cached.setting),
                ram_bytes=cached.num_bytes,
                changes_training=False,
                settings={"cache": True},
                loader=loader.name,
                place=loader.made_at,
            )
        )
    found += _packing(case, predicted, loader, trial, cost)
    found += _scaling(blamed, predicted, cost)
    return found or _cheaper(blamed, predicted, cost)


def _packing(
    case: Case, predicted: Forecast, loader: Loader, trial: Trial | None, cost: Cost
) -> list[Advice]:
    if trial is None or trial.seconds_per_sample <= 0:
        return []
    fixed = trial.seconds_per_sample if trial.is_deterministic else trial.deterministic_s_per_sample
    if fixed is None:
        return []
    model = predicted.model
    random_share = max(0.0, 1.0 - fixed / trial.seconds_per_sample)
    computed = max(trial.cpu_s_per_sample, 1e-12)
    kept = min(1.0, random_share * trial.seconds_per_sample / computed)
    packed = _stored(loader, trial, model, kept=max(kept, _collating(case, loader)))
    found = [
        Advice(
            key="pack",
            action=f"Pack {loader.dataset} once (stoker pack) and read it with stoker.Loader.",
            reason=f"{percent(1 - random_share)} of a sample's {duration(trial.seconds_per_sample)} is the "
            "same each time: a store holds it ready.",
            speedup=_best_of(predicted, packed),
            ram_bytes=0,
            changes_training=False,
            place=loader.made_at,
        )
    ]
    if random_share > 0.1:
        rate = {"least": _BATCHED[0], "likely": _BATCHED[1], "most": _BATCHED[2]}
        on_host = case.record.machine.device == "cpu"
        random_s = random_share * trial.seconds_per_sample * cost.num_samples
        gains = {
            key: model.speedup(
                replace(
                    _stored(loader, trial, model, kept=_collating(case, loader)),
                    loop_s=random_s / factor if on_host else 2e-4,
                )
            )
            for key, factor in rate.items()
        }
        found.append(
            Advice(
                key="device augmentation",
                action="Draw and apply the random transforms batched on the device (stoker.augment.Pipeline) "
                "from a packed store.",
                reason=f"{percent(random_share)} of a sample's time is random and made one sample at a time.",
                speedup=Interval(gains["likely"], gains["least"] * 0.95, gains["most"] * 1.05),
                ram_bytes=0,
                changes_training=True,  # the same kind of randomness, but other draws
                place=loader.made_at,
            )
        )
    return found


def _best_of(predicted: Forecast, setting: Setting) -> Interval:
    tried = [replace(setting, num_workers=workers) for workers in {0, 1, setting.num_workers}]
    return predicted.speedup(min(tried, key=predicted.model.step_s))


def _stored(loader: Loader, trial: Trial, model: Model, *, kept: float) -> Setting:
    num = loader.batch_size or 1
    reading = num * (_READ_SAMPLE_S + trial.bytes_per_sample / _READ_BYTES_PER_S)
    return replace(model.present, kept=kept, kept_waiting=0.0, reading_s=reading)


def _collating(case: Case, loader: Loader) -> float:
    """Share of a batch's processor time that stays when its samples lie ready."""
    batches = normal_batches(case.record, loader)
    total = sum(batch.fetch_cpu_s + batch.collate_cpu_s for batch in batches)
    return sum(batch.collate_cpu_s for batch in batches) / total if total > 0 else 0.0


def _scaling(blamed: Blame, predicted: Forecast, cost: Cost) -> list[Advice]:
    """Normalising sample by sample what could be normalised once."""
    for cause in blamed.causes:
        if cause.kind in {"transform", "host code"} and _SCALING.search(cause.text):
            part = _part_of_sample(cause, cost)
            if part > 0.1:
                setting = replace(predicted.model.present, kept=1 - 0.95 * part)
                return [
                    Advice(
                        key="prenormalise",
                        action="Normalise the data once, when it is packed (or whole batches on the device), "
                        "not sample by sample.",
                        reason=f"{cause.text}: {percent(part)} of a sample.",
                        speedup=predicted.speedup(setting),
                        ram_bytes=0,
                        changes_training=False,
                        place=cause.place,
                    )
                ]
    return []


def _cheaper(blamed: Blame, predicted: Forecast, cost: Cost) -> list[Advice]:
    """Where nothing else helps: what half the cost of the dearest part would bring."""
    kinds = {"transform", "host code", "fetch", "collate"}
    cause = next((cause for cause in blamed.causes if cause.kind in kinds), None)
    if cause is None:
        return []
    part = cost.collate_s / cost.total_s if cause.kind == "collate" else _part_of_sample(cause, cost)
    now, model = predicted.model.present, predicted.model
    likely, least, most = (model.speedup(replace(now, kept=1 - gone * part)) for gone in (0.5, 0.4, 0.6))
    return [
        Advice(
            key=cause.kind,
            action=f"Make it cheaper: vectorise it, or do once what is the same each time ({cause.text}).",
            reason="The gain holds if it takes half as long as now, all else as it is.",
            speedup=Interval(likely, 0.97 * min(likely, least), 1.03 * max(likely, most)),
            ram_bytes=0,
            changes_training=False,
            place=cause.place,
        )
    ]


def _part_of_sample(cause: Cause, cost: Cost) -> float:
    name = next((name for name in cost.transforms if f"transform {name} " in cause.text), None)
    if name is not None:
        return min(1.0, cost.transforms[name] / max(cost.sample_s, 1e-12))
    return next((line.share for line in cost.lines if line.place == cause.place), 0.0)
