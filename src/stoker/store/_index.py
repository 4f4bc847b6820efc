"""The index: which samples there are, in the source's order, and where each one lies.

Shards are written in whatever order workers finish and never change; the index puts their rows in
order. A row that no index names is a tombstone: dead until ``compact`` rewrites its shard.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DamagedStoreError, UnsafeStoreError
from stoker.store._durable import write_file
from stoker.store._image import Image
from stoker.store._layout import Column, digest, map_file, open_columns
from stoker.store._manifest import FileEntry, index_path
from stoker.store._mapping import expect_random_access
from stoker.store._shard import strings
from stoker.store._strings import Strings

NO_SPLIT = 255
_LARGE_BYTES = 1 << 28  # a column of 67 million samples

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class Index:
    """One entry a sample in every array; mapped from the file: page cache, not memory."""

    keys: Strings
    fingerprints: NDArray[np.uint64]  # [N, 2]
    shard: NDArray[np.uint32]  # position in the manifest's list of shards
    row: NDArray[np.uint32]  # row in that shard
    split: NDArray[np.uint8]  # position in the manifest's list of splits, or NO_SPLIT

    def __len__(self) -> int:
        return len(self.shard)

    def publish(self, root: Path) -> FileEntry:
        """Write the index, whole and forced to disk, under its digest."""
        image = Image(
            {
                "keys/values": self.keys.values,
                "keys/offsets": self.keys.offsets,
                "fingerprints": self.fingerprints,
                "shard": self.shard,
                "row": self.row,
                "split": self.split,
            },
            "none",
        )
        write_file(index_path(root, image.digest), image.pieces())
        return FileEntry(digest=image.digest, num_bytes=image.num_bytes, num_samples=len(self))

    @classmethod
    def open_checked(cls, root: Path, entry: FileEntry) -> "Index":
        """As ``open``, but only if every byte is as published: what a writer builds upon."""
        path = index_path(root, entry.digest)
        if digest(map_file(path, entry.num_bytes).data) != entry.digest:
            raise DamagedStoreError(f"{path} is damaged; `stoker repair` makes it anew")
        return cls.open(root, entry)

    @classmethod
    def open(cls, root: Path, entry: FileEntry) -> "Index":
        """Map the index; its arrays have the sizes that the manifest promises."""
        path = index_path(root, entry.digest)
        columns = open_columns(path, entry.num_bytes)
        try:
            keys = strings(columns, "keys", entry.num_samples)
            opened = cls(
                keys=keys,
                fingerprints=_array(columns["fingerprints"], np.uint64),
                shard=_array(columns["shard"], np.uint32),
                row=_array(columns["row"], np.uint32),
                split=_array(columns["split"], np.uint8),
            )
        except DamagedStoreError as error:
            raise UnsafeStoreError(f"{path}: {error}") from error
        except KeyError as error:
            raise UnsafeStoreError(f"{path} is not an index: {error}") from error
        num_samples = entry.num_samples
        sizes = {len(opened.shard), len(opened.row), len(opened.split)}
        if sizes != {num_samples} or opened.fingerprints.shape != (num_samples, 2):
            raise UnsafeStoreError(f"{path} does not have the {num_samples} entries it should")
        for column in (opened.shard, opened.row):
            if column.nbytes > _LARGE_BYTES:  # a smaller one is soon in memory, and read ahead the sooner
                expect_random_access(column)
        return opened


def _array(column: Column, dtype: type[_Scalar]) -> NDArray[_Scalar]:
    array = np.asarray(column)
    if array.dtype != dtype:
        raise UnsafeStoreError(f"an index column has type {array.dtype} instead of {dtype}")
    return array
