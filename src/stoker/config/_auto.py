"""What the profile "auto" decides, as a function of the machine and the data alone."""

from dataclasses import dataclass
from typing import Any

_GIB = 1 << 30
_SAMPLES_PER_UPDATE = 64
_SMALL_STEP = 16


@dataclass(frozen=True)
class Facts:
    """What is known before a run.

    `device_memory_bytes` is that of the GPU, or the available memory again where the CPU trains.
    """

    cores: int
    memory_bytes: int  # available
    device: str  # "cuda" or "cpu"
    device_memory_bytes: int
    data_bytes: int  # of all stores, as they lie on disk
    compressed: bool  # whether any store is
    windows: bool = False  # whether windows are cut, which are read where they lie


@dataclass(frozen=True)
class Decision:
    """One setting and why."""

    path: tuple[str, ...]
    value: object
    reason: str


def decide(facts: Facts) -> list[Decision]:
    """Every setting that depends on the machine or the data."""
    return [*_steps(facts), _compiled(facts), *_loading(facts)]


def as_data(decisions: list[Decision]) -> dict[str, Any]:
    """The decisions as a profile's file would hold them."""
    data: dict[str, Any] = {}
    for decision in decisions:
        section = data
        for key in decision.path[:-1]:
            section = section.setdefault(key, {})
        section[decision.path[-1]] = decision.value
    return data


def _steps(facts: Facts) -> list[Decision]:
    """64 samples an update everywhere; only the number of steps they take depends on the device."""
    enough_bytes = 6 * _GIB
    memory = f"{_size(facts.device_memory_bytes)} on the {_device(facts)}"
    if facts.device_memory_bytes < enough_bytes:
        size, why = _SMALL_STEP, f"{memory} is less than {_size(enough_bytes)}: small steps"
    else:
        size, why = _SAMPLES_PER_UPDATE, f"{memory}: whole steps"
    accumulate = _SAMPLES_PER_UPDATE // size
    return [
        Decision(("batch_size",), size, why),
        Decision(
            ("accumulate",), accumulate, f"{_SAMPLES_PER_UPDATE} samples an update, whatever the device"
        ),
    ]


def _compiled(facts: Facts) -> Decision:
    if facts.device == "cuda":
        return Decision(("compile",), "auto", "a CUDA device gains most from compiled models")
    return Decision(
        ("compile",),
        "off",
        "no CUDA device: compiling needs a C++ compiler, and a while before the first step",
    )


def _loading(facts: Facts) -> list[Decision]:
    loader = ("data", "loader")
    threads = facts.cores if facts.device == "cuda" else max(1, facts.cores // 2)
    who = "a CUDA device computes" if facts.device == "cuda" else "half of them, the CPU also computes"
    decisions = [Decision((*loader, "num_workers"), threads, f"{facts.cores} cores; {who}")]
    data, memory = _size(facts.data_bytes), _size(facts.memory_bytes)
    read_ahead = max(16 << 20, min(_GIB, facts.memory_bytes // 16))
    decisions.append(
        Decision((*loader, "memory_bytes"), read_ahead, f"a sixteenth of {memory} available, at most 1 GiB")
    )
    fits, larger = facts.data_bytes <= facts.memory_bytes // 2, facts.data_bytes > facts.memory_bytes
    why = f"{data} of data {'within' if fits else 'is more than'} half of {memory} available"
    order: bool | str = "quasi" if larger else True
    reading = (
        "larger than memory: runs of neighbours, mixed" if larger else "fits into memory: any order will do"
    )
    if facts.windows:
        fits, why = False, "windows are read where they lie, and stay in the page cache while there is room"
    decisions.append(Decision((*loader, "preload"), fits, why))
    decisions.append(Decision((*loader, "shuffle"), order, f"{data} of data, {reading}"))
    if facts.compressed and not facts.windows:
        decisions.append(
            Decision((*loader, "cache"), "auto", "a compressed store is decoded once, where it fits")
        )
    return decisions


def _device(facts: Facts) -> str:
    return "CUDA device" if facts.device == "cuda" else "CPU"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB" if num_bytes >= _GIB else f"{num_bytes / (1 << 20):.0f} MiB"
