"""A slow Dataset computed once: its samples are kept in memory or in a folder, for all processes.

The samples lie in one file (see _cache_arena.py) as checksummed bytes (_cache_codec.py). A hit on a
16 kB sample takes about 15 microseconds on a 2-core machine; one file a sample would take 4 more for
opening and closing, and an inode each. The least recently used sample goes first, exactly.
"""

import operator
import os
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from stoker.errors import StoreMismatchError, UsageError
from stoker.loader._cache_arena import Arena
from stoker.loader._cache_budget import MemoryWatch, folder_budget, memory_budget
from stoker.loader._cache_check import refuse_if_stale, warn_if_random
from stoker.loader._cache_codec import copy, decode, encode
from stoker.loader._cache_files import Files, in_folder, in_memory
from stoker.loader._cache_source import Source
from stoker.loader._room import megabytes

_NUM_CHECKED = 4  # samples computed twice in a run: finds what is random half of the time 15 times in 16

_T = TypeVar("_T")


@dataclass(frozen=True)
class CacheStats:
    """What a cache did since it was opened, in all processes."""

    hits: int  # samples served from the cache; high is good
    misses: int  # samples that were computed
    evictions: int  # samples that made room for others; high: max_bytes is too small
    num_bytes: int  # taken now, in whole pages
    num_samples: int  # cached now


def cache(
    dataset: Any,
    *,
    max_bytes: int | None = None,
    path: str | os.PathLike[str] | None = None,
    version: str | None = None,
    when_full: Literal["evict", "keep"] = "evict",
    check: bool = True,
) -> "Cached":
    """A map-style Dataset that gives the same samples, to the bit, and computes each once while it fits.

    For datasets that are slow and deterministic: decoding, resampling, parsing. DataLoader workers
    (however started) and threads share it. What a hit gives is the caller's own: changing it in place
    does not change the cache.

    Args:
        dataset: with ``__len__`` and ``__getitem__``; ``__getitems__`` is used for misses if it is there.
            Its samples are dicts, lists and tuples of tensors, arrays, numbers, text, bytes and None.
        max_bytes: never exceeded. Samples take whole pages (4 KiB). By default half of the memory that
            is available (of this rank's share of it), or half of the disk's free space.
        path: a folder on a local disk (or in /dev/shm, for several ranks) where samples stay from run
            to run. By default they are in memory, private to this process and its workers, and gone
            with the last of these, however it ends.
        version: change it when the dataset's code changes; a folder of another version, class or length
            is refused. If the dataset has ``key(i)`` or ``fingerprint(i)``, a sample for which these
            have changed is computed anew.
        when_full: "evict" the least recently used sample, or "keep" what is there. When the data are
            larger than ``max_bytes`` and every epoch takes all of them, "keep" has more hits.
        check: compute the first few samples of a run twice, warn if they are random (a cache would
            freeze them), and refuse a folder whose samples are not those that the dataset gives now.

    Raises:
        UsageError: an option that cannot be, or more memory than there is.
        StoreMismatchError: the folder caches another dataset.
        StoreWriteError: the folder cannot be written.
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UsageError(
            f"a dataset with __len__ and __getitem__ can be cached, got {type(dataset).__name__}"
        )
    if when_full not in {"evict", "keep"}:
        raise UsageError(f"when_full must be 'evict' or 'keep', got {when_full!r}")
    if max_bytes is not None and max_bytes < 1:
        raise UsageError(f"max_bytes must be at least 1, got {max_bytes}")
    folder = None if path is None else Path(path)
    return Cached(dataset, max_bytes, folder, version, evicts=when_full == "evict", check=check)


class Cached:
    """A dataset behind a cache; see ``stoker.cache``."""

    def __init__(
        self,
        dataset: Any,
        max_bytes: int | None,
        folder: Path | None,
        version: str | None,
        *,
        evicts: bool,
        check: bool,
    ) -> None:
        self.dataset = dataset
        self._source = Source(dataset)
        self._identity = self._source.identity(version)
        self._folder = folder
        self._evicts = evicts
        self._check = check
        self._run = secrets.randbits(64)  # the same in all workers
        if folder is None:
            self.max_bytes = memory_budget(max_bytes)
            files = self._make_files()
        else:
            files = self._make_files()
            self.max_bytes = folder_budget(max_bytes, folder, files)
        self._open(files)
        self._before = self._arena.index.counts()
        if evicts and not self._arena.can_evict:
            warnings.warn(
                f"{folder} is on a file system that cannot free a part of a file: when the cache is full, "
                "what is cached stays; give a path on a local disk",
                stacklevel=3,
            )

    def __len__(self) -> int:
        return self._identity.num_samples

    def __getitem__(self, index: int) -> Any:
        number = self._number(index)
        found, sample = self._cached(number)
        return sample if found else self._compute([number])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several at once; those that are missing are asked of the dataset together."""
        missing: dict[int, list[int]] = {}  # number -> positions
        samples: list[Any] = []
        for position, number in enumerate([self._number(index) for index in indices]):
            found, sample = (False, None) if number in missing else self._cached(number)
            samples.append(sample)
            if not found:
                missing.setdefault(number, []).append(position)
        computed = self._compute(list(missing)) if missing else []
        for (first, *others), sample in zip(missing.values(), computed, strict=True):
            samples[first] = sample
            for position in others:  # each its own, and none of them computed
                samples[position] = copy(sample)
                self._arena.index.count(hits=1)
        return samples

    def key(self, index: int) -> str:
        """The dataset's own key, or the number."""
        number = self._number(index)
        return str(self.dataset.key(number) if hasattr(self.dataset, "key") else number)

    def stats(self) -> CacheStats:
        """What all processes did."""
        self._check_open()
        counts = zip(self._arena.index.counts(), self._before, strict=True)
        hits, misses, evictions = (now - before for now, before in counts)
        return CacheStats(hits, misses, evictions, self._arena.num_bytes, self._arena.num_samples)

    def clear(self) -> None:
        """Forget all samples, in all processes."""
        self._check_open()
        self._arena.clear()

    def close(self) -> None:
        """Let go of memory and files; what is in a folder stays there. Workers end first."""
        self._closed = True
        self._arena.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"Cached({self._identity}, closed)"
        stats = self.stats()
        return (
            f"Cached({self._identity}: {stats.num_samples} in {megabytes(stats.num_bytes)} of "
            f"{megabytes(self.max_bytes)} {f'in {self._folder}' if self._folder else 'of memory'}, "
            f"{stats.hits} hits, {stats.misses} misses)"
        )

    def __getstate__(self) -> dict[str, Any]:
        self._check_open()
        kept = ("dataset", "max_bytes", "_identity", "_folder", "_evicts", "_check", "_run", "_before")
        return {"address": self._arena.index.address, **{name: getattr(self, name) for name in kept}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        address = state.pop("address")
        vars(self).update(state)
        self._source = Source(self.dataset)
        shared = address.open()
        self._open(shared or self._make_files())
        if shared is None:  # its process has ended, or is on another machine: this cache is another one
            self._before = self._arena.index.counts()

    def _make_files(self) -> Files:
        return in_memory(len(self)) if self._folder is None else in_folder(self._folder, self._identity)

    def _open(self, files: Files) -> None:
        self._arena = Arena(files, len(self), self.max_bytes, evicts=self._evicts)
        self._closed = False
        self._checks_left = _NUM_CHECKED if self._check else 0
        self._stopped = self._told_large = False
        self._memory = MemoryWatch()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the cache is closed; make a new one")

    def _number(self, index: int) -> int:
        self._check_open()
        number = operator.index(index)
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return number

    def _cached(self, number: int) -> tuple[bool, Any]:
        encoded = self._arena.load(number, self._source.seed(number))
        if encoded is None:
            return False, None
        self._arena.index.count(hits=1)
        sample = decode(encoded)
        if self._folder is not None and self._checks_left and self._claim_check():
            self._refuse_if_stale(number, sample, self._folder)
        return True, sample

    def _compute(self, numbers: list[int]) -> list[Any]:
        seeds = [self._source.seed(number) for number in numbers]  # as they are before the reading
        samples = self._source.compute(numbers)
        self._arena.index.count(misses=len(numbers))
        for number, seed, sample in zip(numbers, seeds, samples, strict=True):
            if self._checks_left and self._claim_check():
                _named(number, warn_if_random, self._source, number, sample)
            self._stopped = self._stopped or self._arena.index.is_stopped(self._run)
            if not self._stopped:
                self._keep(number, seed, _named(number, encode, sample))
        return samples

    def _claim_check(self) -> bool:
        """Whether this sample is one of the first of the run, whichever process it is in."""
        claimed = self._arena.index.claim_check(self._run, _NUM_CHECKED)
        self._checks_left = self._checks_left - 1 if claimed else 0
        return claimed

    def _refuse_if_stale(self, number: int, sample: Any, folder: Path) -> None:
        try:
            refuse_if_stale(self._source, number, sample, folder)
        except StoreMismatchError:  # whoever catches it gets no other such sample either
            self._arena.index.return_check(self._run)
            self._checks_left += 1
            raise

    def _keep(self, number: int, seed: int, encoded: bytes) -> None:
        try:
            stored = self._arena.store(number, seed, encoded)
        except OSError as error:
            self._stop(f"{self._folder or 'memory'} cannot be written ({error.strerror}); free some space")
            return
        if not stored and not self._arena.could_hold(len(encoded)):
            if not self._told_large:
                warnings.warn(
                    f"samples larger than max_bytes={self.max_bytes} are computed each time, "
                    f"sample {number} has {len(encoded)}; allow more",
                    stacklevel=2,
                )
            self._told_large = True
        elif self._folder is None and self._memory.is_low_after(len(encoded)):
            self._stop("the machine's memory is nearly used up; give a smaller max_bytes, or path=")

    def _stop(self, why: str) -> None:
        self._stopped = True
        if self._arena.index.stop(self._run):
            warnings.warn(
                f"no more samples are cached, {self._arena.num_samples} of {len(self)} are: {why}",
                stacklevel=2,
            )


def _named(number: int, call: Callable[..., _T], *arguments: Any) -> _T:
    """The call; its complaint about a sample says which."""
    try:
        return call(*arguments)
    except UsageError as error:
        raise UsageError(f"sample {number}: {error}") from error
