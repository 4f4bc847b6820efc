"""Out of memory: how it shows, what would help, and the largest batch that fits."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from stoker.errors import DeviceMemoryError, UsageError

_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device (or the CPU's allocator) had no room; PyTorch raises both in several guises."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


def memory_error(
    error: BaseException, *, device: torch.device, batch_size: int | None, accumulate: int, precision: str
) -> DeviceMemoryError:
    """The error that says which settings would make a step fit, the cheapest first."""
    help_lines = []
    if batch_size is None or batch_size > 1:
        half = "half the batch_size" if batch_size is None else f"batch_size={(batch_size + 1) // 2}"
        help_lines.append(f"{half} with accumulate={2 * accumulate}: the same update from smaller pieces")
    if precision == "fp32" and device.type == "cuda":
        help_lines.append('precision="bf16": activations take half')
    help_lines.append("Trainer.find_batch_size: the largest batch that fits")
    help_lines.append("torch.utils.checkpoint in the model: activations are computed again, not kept")
    if device.type == "cuda":
        help_lines.append("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: against fragments")
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    listing = "".join(f"\n  - {line}" for line in help_lines)
    return DeviceMemoryError(
        f"a step does not fit into the memory of {device}: {reason}; what helps:{listing}"
    )


def find_batch_size(
    fits: Callable[[int], object], *, start: int = 1, maximum: int = 65536, divisor: int = 1
) -> int:
    """The largest batch size that `fits` runs with without running out of memory.

    Doubles from `start` until it does not fit, then halves the gap: 2 log2(result) trials.

    Args:
        fits: called with a batch size; makes as much of a step as is to fit. Running out of memory is
            the answer "no"; any other error is raised.
        start: tried first.
        maximum: never more.
        divisor: the result is a multiple of it.

    Raises:
        DeviceMemoryError: not even `start` fits.
    """
    if not 1 <= divisor <= start <= maximum or start % divisor:
        raise UsageError(
            f"find_batch_size needs 1 <= divisor <= start <= maximum with start a multiple of divisor, "
            f"got divisor={divisor}, start={start}, maximum={maximum}"
        )
    if not _tried(fits, start):
        raise DeviceMemoryError(
            f"not even a batch of {start} fits into the device's memory; start lower, or with a smaller model"
        )
    good, bad = start, None
    while bad is None and good < maximum:
        size = min(2 * good, maximum - maximum % divisor)
        if size <= good:
            break
        if _tried(fits, size):
            good = size
        else:
            bad = size
    while bad is not None and bad - good > divisor:
        middle = good + (bad - good) // 2 // divisor * divisor
        if _tried(fits, middle):
            good = middle
        else:
            bad = middle
    return good


def _tried(fits: Callable[[int], object], size: int) -> bool:
    try:
        fits(size)
    except Exception as error:
        if is_out_of_memory(error):
            return False
        raise
    return True


def start_peak(device: torch.device) -> None:
    """Begin to measure the peak, where the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """The device's most bytes in tensors since `start_peak`; on a CPU the process' most ever."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):  # not Linux: there it may be the most of the process that started this one
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
