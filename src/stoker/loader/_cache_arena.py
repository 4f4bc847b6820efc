"""A fixed number of samples as bytes, shared by processes, within a budget: the least recently used goes.

A hit takes no lock: it reads the record, then the bytes, and believes them only if the checksum says
that they are this sample's; if not (it was just evicted, or is damaged) it looks again under the lock.
Writers take turns. Samples are appended to one file, and evicting one punches a hole where it lay, so
the file system keeps the free space and nothing is ever moved.

A process that is killed while it writes leaves ``UNFINISHED`` set: whoever locks next counts anew from
the records and cuts off what none of them owns.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Iterator

import numpy as np
import xxhash

from stoker.loader import _cache_files as layout
from stoker.loader._cache_codec import Buffer
from stoker.loader._cache_files import Files
from stoker.loader._cache_index import Index

_PAGE = mmap.PAGESIZE
_NUM_VICTIMS = 1024  # found in one pass over all records
_LARGEST_FILE = 1 << 43  # then it starts again, empty: ext4 ends at twice that


class Arena:
    """Bytes by sample number. Safe in threads and across forks."""

    def __init__(self, files: Files, num_records: int, max_bytes: int, *, evicts: bool) -> None:
        self.max_bytes = max_bytes
        self.index = Index(files, num_records)
        self._words = self.index.words
        self._victims: list[tuple[int, int]] = []  # when last used, number; the oldest at the end
        with self._writing():
            self._recover()
            self.can_evict = layout.can_punch(files.samples)
            self._evicts = evicts and self.can_evict
            self._trim()

    @property
    def num_bytes(self) -> int:
        """That samples take, in whole pages."""
        return self._words[layout.NUM_BYTES]

    @property
    def num_samples(self) -> int:
        """In the arena."""
        return self._words[layout.NUM_SAMPLES]

    def could_hold(self, length: int) -> bool:
        """Whether so many bytes fit if nothing else is there."""
        return _whole_pages(length) <= self.max_bytes

    def load(self, number: int, seed: int) -> Buffer | None:
        """A private copy of the sample's bytes, or None; ``seed`` is what it was stored with."""
        found = self._read(number, seed)
        if found is not None or not self._length(number):
            return found
        with self._writing():  # evicted or replaced meanwhile, or damaged
            found = self._read(number, seed)
            if found is None and self._length(number):
                self._remove(number)
            return found

    def store(self, number: int, seed: int, content: bytes) -> bool:
        """Keep the bytes; False if they do not fit.

        Raises:
            OSError: the disk is full; nothing of it is left.
        """
        size = _whole_pages(len(content))
        checksum = xxhash.xxh3_64_intdigest(content, seed)
        words, record = self._words, _record(number)
        with self._writing():
            if self._length(number):  # another process was faster
                return True
            if not self._make_room(size):
                return False
            offset = words[layout.POSITION]
            try:
                _write(self.index.files.samples, content, offset)
                _write(self.index.files.samples, bytes(size - len(content)), offset + len(content))
            except OSError:
                os.ftruncate(self.index.files.samples, offset)
                raise
            words[record + layout.OFFSET] = offset
            words[record + layout.CHECKSUM] = checksum
            words[record + layout.USED] = time.monotonic_ns()
            words[record + layout.LENGTH] = len(content)  # last: from here on it is seen
            words[layout.POSITION] = offset + size
            words[layout.NUM_BYTES] += size
            words[layout.NUM_SAMPLES] += 1
        return True

    def clear(self) -> None:
        """Forget all samples."""
        with self._writing():
            self._clear()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Alone among all threads and processes; what a killed one left is put right first."""
        with self.index.alone():
            if self._words[layout.UNFINISHED]:
                self._recover()
            self._words[layout.UNFINISHED] = 1
            yield
            self._words[layout.UNFINISHED] = 0  # not after an error: the next one counts anew

    def _length(self, number: int) -> int:
        return self._words[_record(number) + layout.LENGTH]

    def _read(self, number: int, seed: int) -> Buffer | None:
        words, record = self._words, _record(number)
        offset, length, checksum, _ = words[record : record + layout.RECORD_WORDS].tolist()
        if not length or offset + length > words[layout.POSITION]:
            return None
        found = np.empty(length, np.uint8)
        if not _read_all(self.index.files.samples, found.data, offset):
            return None
        if xxhash.xxh3_64_intdigest(found.data, seed) != checksum:
            return None
        words[record + layout.USED] = time.monotonic_ns()
        return found

    def _make_room(self, size: int) -> bool:
        if size > self.max_bytes or (not self._evicts and self.num_bytes + size > self.max_bytes):
            return False
        self._evict_until(self.max_bytes - size)
        if self._words[layout.POSITION] + size > _LARGEST_FILE:
            self._clear()
        return True

    def _trim(self) -> None:
        """Down to the budget, which may have been larger in the run before."""
        if self.can_evict:
            self._evict_until(self.max_bytes)
        elif self.num_bytes > self.max_bytes:
            self._clear()

    def _evict_until(self, num_bytes: int) -> None:
        while self.num_bytes > num_bytes:
            self._remove(self._least_recently_used())
            self._words[layout.EVICTIONS] += 1

    def _least_recently_used(self) -> int:
        """Exact: those found before and not used since are still older than all others."""
        records = self.index.records
        while True:
            while self._victims:
                used, number = self._victims.pop()
                if self._length(number) and self._words[_record(number) + layout.USED] == used:
                    return number
            live = np.flatnonzero(records[:, layout.LENGTH])
            used_at = records[live, layout.USED]
            if len(live) > _NUM_VICTIMS:
                oldest = np.argpartition(used_at, _NUM_VICTIMS)[:_NUM_VICTIMS]
                live, used_at = live[oldest], used_at[oldest]
            self._victims = sorted(zip(used_at.tolist(), live.tolist(), strict=True), reverse=True)
            assert self._victims, "over the budget without samples"

    def _remove(self, number: int) -> None:
        """The pages first: a record without them fails its checksum, pages without a record leak."""
        record = _record(number)
        offset, size = self._words[record + layout.OFFSET], _whole_pages(self._length(number))
        with contextlib.suppress(OSError, ValueError):  # they were cut off, or the file system cannot
            layout.punch(self.index.files.samples, offset, size)
        self._words[record + layout.LENGTH] = 0
        self._words[layout.NUM_BYTES] -= size
        self._words[layout.NUM_SAMPLES] -= 1

    def _clear(self) -> None:
        self.index.records[:, layout.LENGTH] = 0
        os.ftruncate(self.index.files.samples, 0)
        for word in (layout.POSITION, layout.NUM_BYTES, layout.NUM_SAMPLES):
            self._words[word] = 0

    def _recover(self) -> None:
        """Count anew from the records; drop those that point behind the file's end."""
        records, end = self.index.records, np.uint64(os.fstat(self.index.files.samples).st_size)
        offset, length = records[:, layout.OFFSET], records[:, layout.LENGTH]
        outside = (length > end) | (offset > end - np.minimum(length, end))
        length[outside | (offset % np.uint64(_PAGE) != 0)] = 0
        live = np.flatnonzero(length)
        num_pages = -(-length[live].astype(np.int64) // _PAGE)
        position = int((offset[live].astype(np.int64) + num_pages * _PAGE).max(initial=0))
        os.ftruncate(self.index.files.samples, position)
        used = records[live, layout.USED]
        if int(used.max(initial=0)) > time.monotonic_ns():  # the machine was started again: keep the order
            records[live[np.argsort(used)], layout.USED] = np.arange(len(live), dtype=np.uint64)
        self._words[layout.POSITION] = position
        self._words[layout.NUM_BYTES] = int(num_pages.sum()) * _PAGE
        self._words[layout.NUM_SAMPLES] = len(live)


def _record(number: int) -> int:
    return layout.FIRST_RECORD + layout.RECORD_WORDS * number


def _whole_pages(length: int) -> int:
    return length + -length % _PAGE


def _read_all(descriptor: int, into: memoryview, offset: int) -> bool:
    """Fill the buffer; False at the file's end, or where the disk cannot be read."""
    done = 0
    while done < len(into):  # once; more often beyond 2 GiB
        try:
            count = os.preadv(descriptor, [into[done:]], offset + done)
        except OSError:
            return False
        if not count:
            return False
        done += count
    return True


def _write(descriptor: int, content: bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
