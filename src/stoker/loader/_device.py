"""Getting batches onto the device: not at all on the CPU, on a stream of its own with CUDA."""

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.loader._course import Fetched
from stoker.store._memory import empty, owner
from stoker.store._samples import Array

if TYPE_CHECKING:
    import torch

Batch = dict[str, Any]


class Transfer:
    """Copies batches to the device one step ahead of their use.

    With CUDA, buffers are pinned and the copy runs on its own stream; the consumer's stream waits
    for it by an event, never the host. The host tensor is held until that event has passed, so that
    its buffer is not filled again while the copy still reads it.
    """

    def __init__(self, device: "str | torch.device") -> None:
        import torch

        self.device = torch.device(device)
        self._stream: Any = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._held: list[tuple[Any, Batch]] = []  # event of a copy, and what it reads

    def buffer(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for batches: pinned if they are copied to a GPU."""
        if self._stream is None:
            return empty(shape, dtype)
        import torch

        num_bytes = math.prod(shape) * dtype.itemsize
        pinned = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
        return owner(pinned.numpy().data, shape, dtype)

    @property
    def pinned(self) -> bool:
        """Whether host memory must be pinned."""
        return self._stream is not None

    def ahead(self, batches: Generator[Fetched]) -> Generator[Fetched]:
        """The batches with their tensors on the device; with CUDA, the next copy is already under way."""
        if self.device.type == "cpu":
            return batches
        return self._moved(batches) if self._stream is None else self._copied(batches)

    def _moved(self, batches: Generator[Fetched]) -> Generator[Fetched]:
        for fetched in batches:
            fetched.tensors = self._to_device(fetched.tensors)
            yield fetched

    def _copied(self, batches: Generator[Fetched]) -> Generator[Fetched]:
        under_way: tuple[Fetched, Any] | None = None
        for fetched in batches:
            following = fetched, self._start_copy(fetched)
            if under_way is not None:
                yield self._delivered(*under_way)
            under_way = following
        if under_way is not None:
            yield self._delivered(*under_way)

    def _to_device(self, batch: Batch) -> Batch:
        return {name: _to(value, self.device) for name, value in batch.items()}

    def _start_copy(self, fetched: Fetched) -> Any:
        """Start the copy; gives the event that marks its end."""
        import torch

        on_host = fetched.tensors
        with torch.cuda.stream(self._stream):
            fetched.tensors = self._to_device(on_host)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        self._held = [(done, held) for done, held in self._held if not done.query()]
        self._held.append((event, on_host))
        return event

    def _delivered(self, fetched: Fetched, event: Any) -> Fetched:
        """Let the consumer's stream, not the host, wait for the copy."""
        import torch

        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(event)
        for value in fetched.tensors.values():
            if isinstance(value, torch.Tensor):
                value.record_stream(consumer)
        return fetched


def _to(value: Any, device: "torch.device") -> Any:
    import torch

    return value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
