"""A source for the packer whose samples are made many at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


class BlockSource:
    """Samples by number, made block by block; the block that was made last is kept.

    Pack it with ``batch_size=block_size``, so that no two workers make the same block.

    Args:
        num_samples: of the source.
        block_size: samples that are made together; the last block may be smaller.
        make: gives the samples of a range of numbers.
        key: a sample's name.
        identity: of all that the samples' values depend on.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        block_size: int,
        make: Callable[[range], Sequence[Any]],
        key: Callable[[int], str],
        identity: str,
    ) -> None:
        self._num_samples = num_samples
        self._block_size = block_size
        self._make = make
        self._fingerprint = xxhash.xxh3_128_digest(identity.encode())
        self._held: tuple[int, Sequence[Any]] = (-1, ())
        self.key = key

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, i: int) -> Any:
        block, place = divmod(i, self._block_size)
        if block != self._held[0]:
            start = block * self._block_size
            stop = min(start + self._block_size, self._num_samples)
            self._held = block, self._make(range(start, stop))
        return self._held[1][place]

    def fingerprint(self, i: int) -> bytes:  # noqa: ARG002 - all depend on the same things
        """128 bits, the same for all."""
        return self._fingerprint

    def fingerprints(self) -> NDArray[np.uint64]:
        """Those of all samples [N, 2]."""
        return np.tile(np.frombuffer(self._fingerprint, np.uint64), (self._num_samples, 1))
