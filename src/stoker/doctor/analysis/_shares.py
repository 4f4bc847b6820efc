"""To whom a step's time belongs: data, copying, operators, the loop's own code, computing."""

from dataclasses import dataclass

from stoker.doctor._record import Record
from stoker.doctor.analysis._lines import OtherTime, split_other
from stoker.doctor.analysis._stages import Timing

_TINY_OPERATOR_S = 40e-6  # on a processor: less than that is dispatch, not arithmetic
_TINY_LAUNCH_S = 20e-6  # on an accelerator: less than the host takes to launch it
_FEWEST_OPERATORS = 20


@dataclass(frozen=True)
class Shares:
    """Shares of the time from step to step, the epoch's start included; the first five sum up to 1."""

    input: float
    copy: float
    operators: float  # Python and the dispatcher issuing operators that are too small
    host: float  # the loop's own code
    compute: float
    waiting: float  # of input: the loop waits
    restarting: float  # of input: an epoch's start
    contention: float  # of input: the loop computes more slowly beside the workers
    header: float  # of input: data made in the loop's header, without a DataLoader
    starved: float  # what waits for data, as far as a replay confirms it
    other: OtherTime

    @property
    def is_crowded(self) -> bool:
        """Whether what is lost because workers and model share the cores is worth a word of its own."""
        return self.contention > 0.05

    @property
    def by_verdict(self) -> dict[str, float]:
        return {
            "input-bound": self.input,
            "copy-bound": self.copy,
            "python-bound": self.operators + self.host,
            "compute-bound": self.compute,
        }


def share_out(record: Record, timing: Timing) -> Shares:
    """A wait that goes on when the data is there is not the data's fault, and is given to the rest."""
    whole = timing.whole_s
    stages = timing.stages
    other = split_other(record)
    waiting, restarting = stages.get("wait", 0.0), timing.pause_s
    contention = 0.0
    if timing.host_s is not None:
        lost = max(0.0, whole - timing.host_s.value)
        if lost < waiting + restarting:
            part = lost / (waiting + restarting)
            waiting, restarting = waiting * part, restarting * part
        elif timing.loader is not None and timing.loader.num_workers and _is_sure(timing):
            contention = lost - waiting - restarting
    header = stages.get("other", 0.0) * other.header
    copy = min(_copy_s(record, timing), whole - waiting - restarting)
    making = waiting + restarting + contention + header
    busy = {stage: seconds for stage, seconds in stages.items() if stage not in {"wait", "copy", "other"}}
    loop_other = stages.get("other", 0.0) - header
    host = (
        loop_other * other.host / max(1.0 - other.header, 1e-9)
        + stages.get("forward", 0.0) * other.in_forward
    )
    model = sum(busy.values()) - stages.get("forward", 0.0) * other.in_forward
    rest = sum(busy.values()) + loop_other
    left = max(0.0, whole - making - copy)
    scale = left / rest if rest > 0 else 0.0
    operators = model if _is_tiny(record, timing) else 0.0
    input_share, copy_share = making / whole, copy / whole
    return Shares(
        input=input_share,
        copy=copy_share,
        operators=operators * scale / whole,
        host=min(host, rest) * scale / whole,
        compute=max(0.0, 1 - input_share - copy_share - (operators + min(host, rest)) * scale / whole),
        waiting=waiting / whole,
        restarting=restarting / whole,
        contention=contention / whole,
        header=header / whole,
        starved=min(1.0, (waiting + restarting + header) / whole),
        other=other,
    )


def _is_sure(timing: Timing) -> bool:
    return timing.ceiling is not None and timing.ceiling.low > 1.02


def _copy_s(record: Record, timing: Timing) -> float:
    """Asynchronous copies don't show in the loop's stage; there the two replays tell."""
    is_async = record.machine.device.startswith(("cuda", "xpu", "hip"))
    if is_async and timing.host_s is not None and timing.device_s is not None:
        return max(0.0, timing.host_s.value - timing.device_s.value)
    return timing.stages.get("copy", 0.0)


def _is_tiny(record: Record, timing: Timing) -> bool:
    found = record.operators
    if found is None or found.per_step < _FEWEST_OPERATORS or found.seconds_per_operator <= 0:
        return False
    seconds = found.seconds_per_operator
    if "forward" in timing.stages and "backward" in timing.stages:  # the profiler itself takes time
        seconds = min(seconds, (timing.stages["forward"] + timing.stages["backward"]) / found.per_step)
    is_host = record.machine.device == "cpu" or record.machine.device.startswith("emulated")
    return seconds < (_TINY_OPERATOR_S if is_host else _TINY_LAUNCH_S)
