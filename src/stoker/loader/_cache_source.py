"""The dataset behind a cache: what tells it from another, and how its samples are computed."""

from typing import Any

import numpy as np
import xxhash

from stoker.errors import UsageError
from stoker.loader._cache_files import Identity


class Source:
    """A map-style dataset, as the cache sees it."""

    def __init__(self, dataset: Any) -> None:
        kind = type(dataset)
        self.dataset = dataset
        self.name = f"{kind.__module__}.{kind.__qualname__}"
        self._tells = [getattr(dataset, name) for name in ("key", "fingerprint") if hasattr(dataset, name)]
        self._seeds = np.zeros(len(dataset) if self._tells else 0, np.uint64)  # 0: not asked for yet

    def identity(self, version: str | None) -> Identity:
        """What must be the same in the next run."""
        return Identity(self.name, len(self.dataset), version)

    def seed(self, number: int) -> int:
        """Of the checksum, so that neither another sample's bytes nor those of an older fingerprint pass.

        Key and fingerprint are asked for once by each process.
        """
        if not self._tells:
            return number
        seed = int(self._seeds[number])
        if not seed:
            text = "\0".join(repr(tell(number)) for tell in self._tells)
            seed = xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), number) or 1
            self._seeds[number] = seed
        return seed

    def compute(self, numbers: list[int]) -> list[Any]:
        """The samples, by one ``__getitems__`` if the dataset has it."""
        if not hasattr(self.dataset, "__getitems__"):
            return [self.dataset[number] for number in numbers]
        samples = list(self.dataset.__getitems__(numbers))
        if len(samples) != len(numbers):
            raise UsageError(
                f"__getitems__ of {self.name} must give one sample for each number, "
                f"got {len(samples)} for {len(numbers)}"
            )
        return samples
