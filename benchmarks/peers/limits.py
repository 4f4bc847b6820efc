"""What memory allows: the plainest copies of the same bytes into reused buffers, handed to nobody."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.serving import Epoch, serve
from peers.workloads import Array, Workload

Gather = Callable[[dict[str, Array], NDArray[np.int64]], None]
"""Copies the samples of these numbers into the buffers."""


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """All of it in memory, and copies of it by one thread and by two."""
    arrays = {name: np.array(array) for name, array in workload.arrays.items()}
    gather = {"fixed": _take, "ragged": _pad, "windows": _cut}[workload.kind](workload, arrays)
    buffers = [_buffers(workload) for _ in range(2)]
    return {
        "1 thread": lambda: _epoch(workload, gather, buffers[:1]),
        "2 threads": lambda: _epoch(workload, gather, buffers),
        "memcpy": lambda: _memcpy(workload, arrays),
    }


def _epoch(workload: Workload, gather: Gather, buffers: list[dict[str, Array]]) -> Iterator[Array]:
    """A thread for each of the buffers; they take batches in turn."""
    order, size = np.random.default_rng().permutation(len(workload)), workload.batch_size

    def work(thread: int) -> None:
        for start in range(thread * size, len(order), len(buffers) * size):
            gather(buffers[thread], order[start : start + size])

    with ThreadPoolExecutor(len(buffers)) as pool:
        list(pool.map(work, range(len(buffers))))
    yield _stand_in(workload)


def _memcpy(workload: Workload, arrays: dict[str, Array]) -> Iterator[Array]:
    """The arrays in their order, as many bytes at a time as a mean batch has."""
    for array in arrays.values():
        flat = array.reshape(-1)
        size = -(-len(flat) * workload.batch_size // len(workload))
        buffer = np.empty(size, flat.dtype)
        for start in range(0, len(flat), size):
            piece = flat[start : start + size]
            np.copyto(buffer[: len(piece)], piece)
    yield _stand_in(workload)


def _take(workload: Workload, arrays: dict[str, Array]) -> Gather:  # noqa: ARG001
    def gather(buffers: dict[str, Array], numbers: NDArray[np.int64]) -> None:
        for name, array in arrays.items():
            out = buffers[name][: len(numbers)]
            np.take(array, numbers, axis=0, out=out, mode="clip")  # "raise" would copy twice

    return gather


def _pad(workload: Workload, arrays: dict[str, Array]) -> Gather:
    def gather(buffers: dict[str, Array], numbers: NDArray[np.int64]) -> None:
        spans = [workload.span(number)[1:] for number in numbers.tolist()]
        longest = max(stop - start for start, stop in spans)
        for row, (start, stop) in zip(buffers["x"], spans, strict=False):
            row[: stop - start] = arrays["x"][start:stop]
            row[stop - start : longest] = 0

    return gather


def _cut(workload: Workload, arrays: dict[str, Array]) -> Gather:
    def gather(buffers: dict[str, Array], numbers: NDArray[np.int64]) -> None:
        for row, number in zip(buffers["x"], numbers.tolist(), strict=False):
            session, start, stop = workload.span(number)
            row[...] = arrays["x"][session, start:stop]

    return gather


def _buffers(workload: Workload) -> dict[str, Array]:
    """A batch's memory, touched once."""
    longest = max(np.diff(workload.offsets), default=0)
    shapes = [(longest,) if workload.kind == "ragged" else field.shape for field in workload.fields]
    return {
        field.name: _on_a_cache_line((workload.batch_size, *shape), field.dtype)
        for field, shape in zip(workload.fields, shapes, strict=True)
    }


def _on_a_cache_line(shape: tuple[int, ...], dtype: str) -> Array:
    """As Stoker's buffers, of which this must know nothing: see ``copying.py``."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.ones(num_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + num_bytes].view(dtype).reshape(shape)


def _stand_in(workload: Workload) -> Any:
    """One batch that counts as all samples: an epoch is over when all of them were copied."""
    return np.broadcast_to(np.zeros(1), (len(workload),))


if __name__ == "__main__":
    serve("numpy", prepare)
