"""What a record means: verdict, shares, ceiling, advice. Plain data; `report.json` is made of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from stoker.doctor._record import Place

Verdict = Literal["input-bound", "copy-bound", "compute-bound", "python-bound", "mixed", "nothing observed"]
SCHEMA_VERSION = 1
WORTHWHILE = 1.03  # below that a change is noise, and advice a nuisance


@dataclass(frozen=True)
class Interval:
    """A figure with the range it may lie in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Advice:
    """One change, and what it would bring."""

    key: str  # "num_workers", "persistent_workers", "in_order", "cache", "pack", "device augmentation", …
    action: str  # a sentence in the imperative
    reason: str  # why, with the figures it follows from
    speedup: Interval  # of the whole step time, by the model
    ram_bytes: int
    changes_training: bool  # then it is never applied by itself
    settings: dict[str, Any] = field(default_factory=dict)  # what `fix` can apply: DataLoader keywords,
    # "torch_threads", "cache"; empty where a person must do it
    loader: str | None = None
    place: Place | None = None  # the exact line to change
    patch: str | None = None  # unified diff of the user's source, where it can be written
    changes_order_only: bool = False  # of what changes training: `fix` may be allowed that


@dataclass(frozen=True)
class Cause:
    """One reason for the time that is lost, with its share of a step."""

    kind: str  # "transform", "fetch", "storage", "collate", "transfer", "too few workers",
    # "oversubscribed", "worker restart", "blocked head", "copy", "operators", "host code", "compute", "sync"
    share: float  # of a step's time
    text: str  # "Augment.__call__ takes 12.1 ms of the 13.0 ms of a sample"
    place: Place | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The answer."""

    verdict: Verdict
    confidence: float  # 0 to 1
    sentence: str  # the verdict for a person, with figures
    culprit: str  # the one thing to blame by name, "" where there is none
    causes: tuple[Cause, ...]
    stages: dict[str, float]  # seconds per step, medians scaled to sum up to step_s
    step_s: Interval
    samples_per_s: float | None
    starved_fraction: float  # share of a step in which the model waits for data
    ceiling_speedup: Interval | None  # with data that is always there; None where not replayed
    device_ceiling_speedup: Interval | None  # with data that is always on the device
    advice: tuple[Advice, ...]
    transforms: dict[str, float]  # seconds a sample, by name
    notes: tuple[str, ...]  # what was not observed, and what to know
    overhead_s_per_step: float
    pause_s_per_step: float = 0.0  # epochs' starts, spread over their steps; not part of step_s
    step_times: dict[str, tuple[float, ...]] = field(default_factory=dict)  # "step" and each stage: seconds
    # of every normal step in order, for telling a slower run from a noisy one
    samples_per_step: float | None = None

    @property
    def has_nothing_to_gain(self) -> bool:
        """True where the model is the limit, and neither a change nor free data would bring anything."""
        free = self.ceiling_speedup is not None and self.ceiling_speedup.value > WORTHWHILE
        return self.verdict == "compute-bound" and not self.advice and not free

    @property
    def culprit_place(self) -> Place | None:
        """The line of the cause that the culprit names; not that of another cause."""
        named = (cause for cause in self.causes if _is_named(cause.text, self.culprit))
        return next((cause.place for cause in named), None)


@dataclass(frozen=True)
class Comparison:
    """A change that was applied, and measured again."""

    applied: tuple[Advice, ...]
    settings: dict[str, dict[str, Any]]  # loader: keywords that were set
    predicted: Interval  # speed-up
    achieved: Interval
    before: Diagnosis
    after: Diagnosis
    patch: str | None


def _is_named(cause: str, culprit: str) -> bool:
    return bool(culprit) and (culprit.startswith(cause) or cause.startswith(culprit))
