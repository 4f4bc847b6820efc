"""What every ready-made source is: numbered, named, fingerprinted and lazy."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.store._strings import Strings
from stoker.store.sources._fingerprints import mix_one, seed_of
from stoker.store.sources._reader import Sample

NOT_THERE = bytes(16)


class Samples(Protocol):
    """The least that a source is; a map-style PyTorch dataset is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class Source(ABC):
    """Samples by number; nothing is read before it is asked for.

    ``identity`` is the text of all that every sample's content depends on besides its own file.
    """

    channel_axis: Mapping[str, int | None]
    """The channel axis of each field whose layout is known; None where it has none."""
    classes: Mapping[str, list[str]]
    """The class names of each field that holds class numbers, in the order of the numbers."""

    def __init__(self, identity: str) -> None:
        self._seed = seed_of(identity)

    @abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample:
        """The sample's fields.

        Raises:
            BadSampleError: It cannot be read; carries its key and says why.
        """
        return self._read(self._number(index))

    @abstractmethod
    def keys(self) -> Strings:
        """Every sample's key, in order."""

    @abstractmethod
    def key(self, index: int) -> str:
        """The sample's unique name, the same in every run."""

    @abstractmethod
    def fingerprints(self) -> NDArray[np.uint64]:
        """Every sample's fingerprint, uint64 [N, 2]; zeros where its file is not there."""

    def fingerprint(self, index: int) -> bytes:
        """16 bytes that change when the sample would: ``fingerprints()[index].tobytes()``."""
        words = self._words(self._number(index))
        return NOT_THERE if words is None else mix_one(self._seed, words)

    @abstractmethod
    def _read(self, i: int) -> Sample: ...

    @abstractmethod
    def _words(self, i: int) -> list[int] | None:
        """What the fingerprint of sample i mixes; None where its file is not there."""

    def _number(self, index: int) -> int:
        i, count = operator.index(index), len(self)
        if not -count <= i < count:
            raise IndexError(f"sample number {i} of {count}")
        return i % count
