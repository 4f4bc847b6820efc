"""Decoded chunks of compressed sessions, within a budget and shared by all threads of a process."""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from stoker.loader._fork_safe import ForkSafe
from stoker.store._samples import Array


class ChunkCache(ForkSafe):
    """The decoded chunks that were used last, up to that many bytes; never fewer than one."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._chunks: OrderedDict[Hashable, Array] = OrderedDict()

    def get(self, key: Hashable, decode: Callable[[], Array]) -> Array:
        """The chunk, decoded if need be: outside the lock, so that threads decode side by side."""
        with self.lock:
            if key in self._chunks:
                self._chunks.move_to_end(key)
                return self._chunks[key]
        chunk = decode()
        with self.lock:
            if key not in self._chunks:
                self._chunks[key] = chunk
                self.num_bytes += chunk.nbytes
            while self.num_bytes > self.max_bytes and len(self._chunks) > 1:
                self.num_bytes -= self._chunks.popitem(last=False)[1].nbytes
        return chunk

    def clear(self) -> None:
        """Forget all."""
        with self.lock:
            self._chunks.clear()
            self.num_bytes = 0

    def start_anew(self) -> None:
        """Empty."""
        super().start_anew()
        self.clear()
