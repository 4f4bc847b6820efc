"""What the stack sampler saw, by line: which are the loop's own work, which make data, which compute."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from stoker.doctor._record import Line, Place, Record

# libraries whose frames under a training loop are tensor work, however deep in Python they start
_TENSOR_LIBRARIES = frozenset(
    {"torch", "torchvision", "torchaudio", "timm", "transformers", "monai", "lightning", "einops", "triton"}
)
# and those that compute on the host wherever they are called, in forward too
_HOST_LIBRARIES = frozenset(
    {"numpy", "scipy", "sklearn", "pandas", "PIL", "cv2", "skimage", "librosa", "statsmodels", "matplotlib"}
)
_SYNCS = (".item(", ".cpu(", ".tolist(", ".numpy(", "synchronize(")


@dataclass(frozen=True)
class Hot:
    """One line of the user's code, with all that was seen under it."""

    place: Place
    callee: str  # what it was mostly in, "" for its own code
    seconds: float
    share: float  # of the seconds that were looked at

    @property
    def name(self) -> str:
        """As a person would say it: 'train.py:57: sklearn f1_score'."""
        what = short_callee(self.callee) or self.place.text or self.place.function
        return f"{where(self.place)}: {what}" if what else where(self.place)


def hottest(lines: Iterable[Line]) -> list[Hot]:
    """By line of the user's code, the longest first."""
    by_place: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        if line.seconds > 0:
            by_place[line.place.file, line.place.line].append(line)
    total = sum(line.seconds for found in by_place.values() for line in found)
    hot = []
    for found in by_place.values():
        seconds = sum(line.seconds for line in found)
        main = max(found, key=lambda line: line.seconds)
        hot.append(Hot(main.place, main.callee, seconds, seconds / total))
    return sorted(hot, key=lambda one: -one.seconds)


def making_lines(record: Record) -> list[Hot]:
    """Lines that make samples: in workers, in the trial, or under the loop's header."""
    for wanted in (_in_process("workers"), _in_process("trial"), lambda line: line.in_loop_header):
        found = [line for line in record.lines if wanted(line)]
        if sum(line.num_samples for line in found) >= 10:
            return hottest(found)
    return hottest(line for line in record.lines if line.process != "loop" or line.in_loop_header)


def _in_process(process: str) -> Callable[[Line], bool]:
    return lambda line: line.process == process


@dataclass(frozen=True)
class OtherTime:
    """How the time that no stage claims is used: shares of it, and whose lines they are."""

    header: float  # makes data under the loop's header
    host: float  # the loop's own code
    header_lines: list[Hot]
    host_lines: list[Hot]
    in_forward: float  # share of the forward pass that is the host's libraries
    forward_lines: list[Hot]


def split_other(record: Record) -> OtherTime:
    """What is not header and not host is tensor work outside the model (a loss) or waits for the device."""
    loop = [line for line in record.lines if line.process == "loop"]
    # without a stage is what lies beside the steps, as validation; or all, where no step was told apart
    other = [line for line in loop if line.stage == "other"] or [line for line in loop if line.stage is None]
    total = sum(line.seconds for line in other)
    header = [line for line in other if line.in_loop_header]
    host = [line for line in other if not line.in_loop_header and _is_host(line, record.machine.device)]
    forward = [line for line in loop if line.stage == "forward"]
    numbers = [line for line in forward if _library(line) in _HOST_LIBRARIES]
    return OtherTime(
        header=_seconds(header) / total if total else 0.0,
        host=_seconds(host) / total if total else 1.0,  # never sampled: all that is known is whose it is not
        header_lines=hottest(header),
        host_lines=hottest(host),
        in_forward=_seconds(numbers) / _seconds(forward) if numbers else 0.0,
        forward_lines=hottest(numbers),
    )


def where(place: Place) -> str:
    """'train.py:57'."""
    return f"{PurePath(place.file).name}:{place.line}"


def short_callee(callee: str) -> str:
    """'sklearn.metrics._classification.f1_score' as 'sklearn f1_score'."""
    parts = [part for part in callee.split(".") if part]
    if len(parts) < 2:
        return callee
    last = ".".join(parts[-2:]) if parts[-2][:1].isupper() and len(parts) > 2 else parts[-1]
    return f"{parts[0]} {last}"


def _seconds(lines: Iterable[Line]) -> float:
    return sum(line.seconds for line in lines)


def _library(line: Line) -> str:
    return line.callee.split(".", 1)[0]


def _is_host(line: Line, device: str) -> bool:
    if _library(line) in _TENSOR_LIBRARIES or "sleep" in line.callee:
        return False
    if line.callee:
        return True
    if "sleep(" in line.place.text:  # stands for a device that computes
        return False
    # a copy back to the host waits until the device has done all that it was given before
    return device == "cpu" or not any(call in line.place.text for call in _SYNCS)
