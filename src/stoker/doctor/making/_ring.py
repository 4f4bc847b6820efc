"""One worker's region of shared memory: a ring of fixed-size records, names, and a table of text.

A region is a file that the worker maps and writes and the main process maps and reads, without a lock:

    header    magic, number of records ever written, number of names, which half of the table is valid
    names     what the records' trailing figures are called, in order; only ever appended to
    table     two halves; a new text goes into the invalid one, then the header's word is turned
    records   a ring; each begins with its number, which is cleared before and set after the rest

A reader that meets a record under way sees a number that does not fit, and leaves it. Records that were
overwritten before anyone read them are counted. The file is allocated in full before it is mapped: a full
disk is an error here and not a bus error in somebody's worker.
"""

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass
from itertools import count
from pathlib import Path

NUM_FIGURES = 13  # integers of every record
MAX_NAMES = 32  # trailing figures of a record; what finds no room is added to the last
NUM_RECORDS = 2048

_MAGIC = b"stokerR1"
_HEADER = struct.Struct("<8sQII")
_WRITTEN_AT, _NAMES_AT, _HALF_AT = 8, 16, 20
_NAME_BYTES = 128
_HALF_BYTES = 65_536
_RECORD = struct.Struct(f"<Q{NUM_FIGURES}qI{MAX_NAMES}q")
_FIRST_NAME = 64
_FIRST_HALF = _FIRST_NAME + MAX_NAMES * _NAME_BYTES
_FIRST_RECORD = _FIRST_HALF + 2 * _HALF_BYTES
SIZE = _FIRST_RECORD + NUM_RECORDS * _RECORD.size

_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
# a batch with few names is packed with few figures
_PAYLOADS = [struct.Struct(f"<{NUM_FIGURES}qI{num_names}q") for num_names in range(MAX_NAMES + 1)]


@dataclass(frozen=True)
class Row:
    """One record: its fixed figures, and the trailing ones by name."""

    figures: tuple[int, ...]
    named: dict[str, int]


class Writer:
    """The worker's end. A region has one writer at a time; the next one goes on where it ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor  # holds the lock that keeps other writers off
        self._memory = mmap.mmap(descriptor, SIZE)
        if self._memory[:8] != _MAGIC:
            _HEADER.pack_into(self._memory, 0, _MAGIC, 0, 0, 0)
        _, self._written, num_names, self._half = _HEADER.unpack_from(self._memory, 0)
        self._slots = {name: slot for slot, name in enumerate(_read_names(self._memory, num_names))}

    @classmethod
    def claim(cls, folder: Path, stem: str) -> "Writer":
        """The first region called `stem` that no living process writes; made if there is none.

        So a loader that starts new workers in each epoch needs as many files as workers live at once.
        """
        for number in count():
            descriptor = os.open(folder / f"{stem}-{number}.ring", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.posix_fallocate(descriptor, 0, SIZE)
                return cls(descriptor)
            except BlockingIOError:
                os.close(descriptor)
            except OSError:
                os.close(descriptor)
                raise
        raise AssertionError

    def slot(self, name: str) -> int:
        """Where the figure called `name` stands in a record; the last slot, when all are taken."""
        found = self._slots.get(name)
        if found is None:
            found = min(len(self._slots), MAX_NAMES - 1)
            name = name if len(self._slots) < MAX_NAMES - 1 else "others"
            self._slots[name] = found
            at = _FIRST_NAME + found * _NAME_BYTES
            text = name.encode()[: _NAME_BYTES - 1].decode(errors="ignore").encode()
            self._memory[at : at + _NAME_BYTES] = text.ljust(_NAME_BYTES, b"\0")
            _LENGTH.pack_into(self._memory, _NAMES_AT, found + 1)
        return found

    def write(self, figures: tuple[int, ...], named: list[int]) -> None:
        """Add a record; `named` by slot."""
        at = _FIRST_RECORD + self._written % NUM_RECORDS * _RECORD.size
        self._written += 1
        _NUMBER.pack_into(self._memory, at, 0)
        _PAYLOADS[len(named)].pack_into(self._memory, at + 8, *figures, len(named), *named)
        _NUMBER.pack_into(self._memory, at, self._written)
        _NUMBER.pack_into(self._memory, _WRITTEN_AT, self._written)

    def write_table(self, text: bytes) -> None:
        """Replace the table; a text that is too long is left out."""
        if len(text) > _HALF_BYTES - _LENGTH.size:
            return
        self._half = 1 - self._half
        at = _FIRST_HALF + self._half * _HALF_BYTES
        _LENGTH.pack_into(self._memory, at, len(text))
        self._memory[at + _LENGTH.size : at + _LENGTH.size + len(text)] = text
        _LENGTH.pack_into(self._memory, _HALF_AT, self._half)

    def read_table(self) -> bytes:
        return _read_table(self._memory, self._half)

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)


class Reader:
    """The main process's end; remembers what it has read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)
        self._next = 0
        self.num_lost = 0

    def read(self) -> list[Row]:
        """The records written since the last call."""
        magic, written, num_names, _ = _HEADER.unpack_from(self._memory, 0)
        if magic != _MAGIC:
            return []  # not yet begun
        names = _read_names(self._memory, num_names)
        oldest = max(self._next, written - NUM_RECORDS)
        self.num_lost += oldest - self._next
        rows = []
        for number in range(oldest, written):
            at = _FIRST_RECORD + number % NUM_RECORDS * _RECORD.size
            record = _RECORD.unpack_from(self._memory, at)
            (again,) = _NUMBER.unpack_from(self._memory, at)
            if record[0] != number + 1 or again != number + 1:
                self.num_lost += 1
                continue
            num_named = record[1 + NUM_FIGURES]
            named = record[2 + NUM_FIGURES : 2 + NUM_FIGURES + num_named]
            rows.append(Row(record[1 : 1 + NUM_FIGURES], dict(zip(names, named, strict=False))))
        self._next = written
        return rows

    def read_table(self) -> bytes:
        """The newest table; empty if none was written."""
        magic, _, _, half = _HEADER.unpack_from(self._memory, 0)
        return _read_table(self._memory, half) if magic == _MAGIC else b""

    def close(self) -> None:
        self._memory.close()


def _read_names(memory: mmap.mmap, num_names: int) -> list[str]:
    first = _FIRST_NAME
    return [
        memory[first + slot * _NAME_BYTES : first + (slot + 1) * _NAME_BYTES].rstrip(b"\0").decode()
        for slot in range(num_names)
    ]


def _read_table(memory: mmap.mmap, half: int) -> bytes:
    at = _FIRST_HALF + half * _HALF_BYTES
    (length,) = _LENGTH.unpack_from(memory, at)
    start = at + _LENGTH.size
    return memory[start : start + length]
