"""What was observed of a training run: plain data, written by the probes, read by the analysis.

    Record
    ├── Machine      cores that the process may use, device, versions
    ├── Loader       each DataLoader of the run: its settings, its role, where it is made
    │   └── Batch    each batch of it, as the process that made it saw it; of many quick ones, some
    ├── Step         each optimizer step: where its time went, and which data it was given
    ├── Pause        time between steps: a new epoch's start, validation
    ├── Line         where Python stood, by a sampler, and for how long
    ├── Operators    how many operators a step issues, and which modules issue them
    ├── Trial        samples made again in the main process, alone: what one costs
    ├── Moment       memory and processor use over time
    └── Event        whatever else deserves a sentence in the report

Times are seconds since the record began (`begin_s`, `end_s`) or durations (`_s`). All processes of a
machine share the clock (`time.perf_counter_ns`). What was not observed is absent or None, never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["wait", "copy", "augment", "forward", "backward", "optimizer", "other"]
STAGES: tuple[Stage, ...] = ("wait", "copy", "augment", "forward", "backward", "optimizer", "other")
_NEARLY_ALL = 0.9  # one fetch that is suddenly slow is not asked about

Phase = Literal["warmup", "normal", "host", "device"]
Role = Literal["train", "validation", "unused"]


@dataclass(frozen=True)
class Place:
    """A line of source code."""

    file: str
    line: int
    function: str = ""
    text: str = ""  # the line itself, stripped


@dataclass(frozen=True)
class Machine:
    """What the run had at its disposal."""

    num_cores: int  # by affinity, cgroup quota and local ranks: those this process may use
    num_cores_present: int
    memory_bytes: int
    device: str  # "cpu", "cuda:0 NVIDIA …", "emulated accelerator"
    num_torch_threads: int
    python: str
    torch: str
    platform: str


@dataclass(frozen=True)
class Loader:
    """One DataLoader of the run."""

    name: str  # "train", "validation", or the variable it was bound to; unique in a record
    role: Role
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    in_order: bool
    shuffles: bool
    drop_last: bool
    start_method: str  # fork, spawn, forkserver
    collate: str  # the function's name
    dataset: str  # its class
    is_iterable: bool
    num_samples: int | None  # in the data set; None where it has no length
    num_batches: int | None
    made_at: Place | None  # the DataLoader(...) call in the user's code
    num_epochs: int = 0  # iterators that were made
    num_made: int = 1  # DataLoaders that the line made, one after another

    @property
    def is_made_anew(self) -> bool:
        """True where (nearly) every epoch has a DataLoader of its own: its workers cannot stay."""
        return self.num_made > 2 and 2 * self.num_made > self.num_epochs  # two may be of two purposes


@dataclass(frozen=True)
class Batch:
    """One batch, as it was made (in a worker or in the main process) and taken."""

    loader: str
    number: int  # in its epoch
    epoch: int
    worker: int | None  # None: made in the main process
    phase: Phase
    begin_s: float
    end_s: float
    fetch_s: float  # wall time of the data set's items
    fetch_cpu_s: float  # of these, on the processor; the rest waits for files, locks or cores
    collate_s: float
    collate_cpu_s: float
    transforms: dict[str, float]  # wall seconds by name, summed over the batch; inside fetch_s
    num_samples: int | None
    num_bytes: int | None
    asked_s: float | None = None  # the loop called next()
    ready_s: float | None = None  # it had arrived in the main process
    taken_s: float | None = None  # next() gave it
    was_ready: bool | None = None  # it lay there when it was asked for
    was_blocked: bool | None = None  # later ones lay there, but not this one
    queued_s: float | None = None  # of its making, ready to run with no core free; None: not told


def with_queues(batches: Sequence[Batch]) -> list[Batch]:
    """Those of which it is known how long they waited for a core; none, where that is not nearly all."""
    told = [batch for batch in batches if batch.queued_s is not None]
    return told if len(told) >= _NEARLY_ALL * len(batches) else []


@dataclass(frozen=True)
class Step:
    """One optimizer step with all its micro-batches.

    `stages` sum up to `end_s - begin_s`; "other" is what none of the probes claimed. A stage that
    could not be observed has no key.
    """

    phase: Phase
    begin_s: float
    end_s: float
    stages: dict[Stage, float]
    num_batches: int  # more than one: gradient accumulation
    num_samples: int | None
    loader: str | None
    waits: tuple[float, ...]  # of each micro-batch
    cpu_s: float  # processor time of the main process, all its threads

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Pause:
    """Time between two steps that is not a step's."""

    kind: Literal["epoch start", "validation", "other"]
    begin_s: float
    end_s: float
    loader: str | None


@dataclass(frozen=True)
class Line:
    """Where Python stood, by samples of its stack."""

    process: Literal["loop", "workers", "trial"]
    stage: Stage | None  # of the loop, when it was sampled
    place: Place  # the innermost line of the user's own code
    callee: str  # what that line was in: "sklearn.preprocessing.StandardScaler.transform", or ""
    module: str  # class of the nn.Module whose forward it was in, or ""
    in_loop_header: bool  # under `for … in X:` of the training loop, so X was making data
    num_samples: int
    seconds: float  # num_samples times the sampling interval


@dataclass(frozen=True)
class Operators:
    """What a step asks of the dispatcher, from a few profiled steps outside the measured ones."""

    per_step: float
    seconds_per_operator: float  # time inside forward and backward, divided by their number
    by_module: dict[str, float]  # number a step, by the class of the module that issues them
    host_syncs: dict[str, float]  # calls a step by place: ".item() train.py:41"


@dataclass(frozen=True)
class Trial:
    """Samples of the training set made again after the run, in the main process, one after another."""

    loader: str
    num_samples: int
    seconds_per_sample: float  # wall
    cpu_s_per_sample: float
    spread: float  # standard deviation of a sample's wall time over its mean
    transforms: dict[str, float]  # wall seconds a sample, by name
    collate_s_per_batch: float
    transfer_s_per_batch: float | None  # pickle, shared memory and queue, one way
    bytes_per_sample: int
    is_deterministic: bool | None  # the same index gave the same sample twice, with other seeds
    deterministic_s_per_sample: float | None  # cost of the part that could be cached: up to the first
    # transform that draws random numbers; None where that could not be told
    division: "Division | None" = None  # of a stream among workers; None: not known, or it is none


@dataclass(frozen=True)
class Division:
    """How a stream divides itself among workers, as far as it was tried."""

    num_workers: int  # up to so many each get a part; 1: each gets all of it
    num_samples: int  # that were looked at
    is_whole: bool  # that was all of it


@dataclass(frozen=True)
class Moment:
    """The process tree at one time."""

    time_s: float
    memory_bytes: int  # proportional set size of the tree, where the system tells it, else resident
    worker_memory_bytes: int
    core_use: tuple[float, ...]  # share of each core in use, by anyone
    process_cpu: float  # cores used by the tree
    accelerator_use: float | None  # NVML's figure, 0 to 1: shown, never judged by


@dataclass(frozen=True)
class Event:
    """Something that happened, in words."""

    time_s: float
    kind: str  # "crash", "worker died", "compile", "warning", "not observed", "throughput"
    text: str
    place: Place | None = None


@dataclass
class Record:
    """Everything that was observed of one run."""

    command: list[str]
    machine: Machine
    loaders: list[Loader] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    operators: Operators | None = None
    trials: list[Trial] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    not_observed: dict[str, str] = field(default_factory=dict)  # stage or subject: why
    overhead_s_per_step: float = 0.0  # of the probes, by their own clocks
    ended: Literal["stopped", "finished", "crashed"] = "finished"
    exit_code: int = 0
    error: str | None = None  # the traceback of a crash
    seconds: float = 0.0
    user_root: str = ""  # folder whose source lines count as the user's own
    started_in: str = ""  # the working directory when the script began

    def in_phase(self, *phases: Phase) -> list[Step]:
        """The steps of these phases, in order."""
        return [step for step in self.steps if step.phase in phases]
