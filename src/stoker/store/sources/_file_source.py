"""What the sources with one file per sample share: reading, masks, labels, fingerprints."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stoker.errors import BadSampleError, UsageError
from stoker.store._strings import Strings
from stoker.store.sources._columns import LABEL, NO_CLASS, Column
from stoker.store.sources._files import Files, FingerprintOf
from stoker.store.sources._fingerprints import column_word, column_words, mix
from stoker.store.sources._images import ImageReader, read_mask
from stoker.store.sources._reader import Reader, Sample, reading
from stoker.store.sources._source import Source


class FileSource(Source):
    """Files, each a sample with the columns' values beside it.

    ``keys`` name the samples; a key with ``suffix`` is the file's name. Each of ``masks`` is the
    name of the mask that belongs to the sample, empty where there is none.
    """

    def __init__(
        self,
        *,
        title: str,
        files: Files,
        keys: Strings,
        suffix: str,
        reader: Reader,
        masks: Strings | None,
        columns: Mapping[str, Column],
        classes: Mapping[str, list[str]],
        fingerprint: FingerprintOf,
    ) -> None:
        if masks is not None and not isinstance(reader, ImageReader):
            raise UsageError(f"masks must belong to images, these are {reader.kind} files")
        super().__init__(f"{fingerprint} {reader.identity} {masks is not None} {list(columns)}")
        self._title = title
        self._files = files
        self._keys = keys
        self._suffix = suffix
        self._reader = reader
        self._masks = masks
        self._columns = dict(columns)
        self.classes = dict(classes)
        self.channel_axis = dict(reader.channel_axis)
        if masks is not None:
            self.channel_axis["mask"] = None

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        classes = "".join(f", {field} one of {', '.join(names)}" for field, names in self.classes.items())
        what = f"{len(self)} {self._reader.kind} files{classes}"
        return f"{type(self).__name__}({self._title!r}: {what})"

    def keys(self) -> Strings:
        """Every sample's key, in order."""
        return self._keys

    def key(self, index: int) -> str:
        """The file's path below the source's folder, or what the CSV file calls it."""
        return self._keys[self._number(index)]

    def fingerprints(self) -> NDArray[np.uint64]:
        """Every sample's fingerprint, uint64 [N, 2]; zeros where its file or mask is not there."""
        pairs, missing = self._files.pairs(self._keys, self._suffix)
        words = [pairs[:, 0], pairs[:, 1]]
        if self._masks is not None:
            pairs, missing_masks = self._files.pairs(self._masks, "")
            words += [pairs[:, 0], pairs[:, 1]]
            missing += missing_masks
        words += [column_words(column) for column in self._columns.values()]
        fingerprints = mix(self._seed, words)
        fingerprints[missing] = 0
        return fingerprints

    def _words(self, i: int) -> list[int] | None:
        words: list[int] = []
        names = [self._keys[i] + self._suffix]
        if self._masks is not None:
            names.append(self._masks[i])
        for name in names:
            pair = self._files.pair(name)
            if pair is None:
                return None
            words += pair
        return words + [column_word(column, i) for column in self._columns.values()]

    def _read(self, i: int) -> Sample:
        key = self._keys[i]
        with self._files.local(key + self._suffix, key) as path, reading(key, path):
            sample = self._reader.read(path)
        if self._masks is not None:
            sample["mask"] = self._read_mask(key, self._masks[i])
        for field, column in self._columns.items():
            if field in sample:
                raise BadSampleError(
                    key, f"the file has a field {field!r} of its own, beside the label or column"
                )
            value = column[i]
            empty = value == NO_CLASS if field in self.classes else field == LABEL and bool(np.isnan(value))
            if empty:
                raise BadSampleError(key, f"it has no label (field {field!r} is empty)")
            sample[field] = value
        return sample

    def _read_mask(self, key: str, name: str) -> NDArray[np.uint8]:
        if not name:
            raise BadSampleError(key, "no mask is named for it")
        with self._files.local(name, key) as path, reading(key, path, "mask"):
            return read_mask(path)
