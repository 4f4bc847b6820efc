"""The data that every loader reads: made from a seed, kept as plain ``.npy`` files in one folder.

Runs in every peer's environment, so it needs NumPy only.
"""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_PIECE_VALUES = 16 << 20  # made and written at a time


@dataclass(frozen=True)
class Field:
    """One array of a sample."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """What is to be loaded, and what a batch of it is.

    The files, by kind: "fixed" has one [N, …] a field. "ragged" has the samples end to end in one
    [all steps], and where each begins in ``offsets.npy``. "windows" has one [sessions, steps,
    channels]; a sample is a window of it, every ``stride`` steps.
    """

    title: str
    kind: Literal["fixed", "ragged", "windows"]
    num_samples: int
    batch_size: int
    fields: tuple[Field, ...]
    num_sessions: int = 0  # of windows, like the next two
    num_steps: int = 0
    stride: int = 0
    folder: Path = Path()

    @staticmethod
    def open(folder: Path) -> "Workload":
        """The workload that was written there."""
        data = json.loads((folder / "workload.json").read_text())
        fields = tuple(Field(f["name"], f["dtype"], tuple(f["shape"])) for f in data.pop("fields"))
        return Workload(**{**data, "fields": fields, "folder": folder})

    def write(self, folder: Path, *, seed: int = 0) -> "Workload":
        """Make the data in a new folder; gives the workload that lies there."""
        folder.mkdir(parents=True)
        rng = np.random.default_rng(seed)
        lengths = rng.integers(4_000, 40_001, self.num_samples if self.kind == "ragged" else 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        np.save(folder / "offsets.npy", offsets)
        for field in self.fields:
            shape = {
                "fixed": (self.num_samples, *field.shape),
                "ragged": (int(offsets[-1]),),
                "windows": (self.num_sessions, self.num_steps, *field.shape[1:]),
            }[self.kind]
            _write_noise(folder / f"{field.name}.npy", np.dtype(field.dtype), shape, rng)
        (folder / "workload.json").write_text(json.dumps({**asdict(self), "folder": None}))
        return replace(self, folder=folder)

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, i: int) -> dict[str, Array]:
        """Sample ``i``, as views of the mapped files."""
        if self.kind == "fixed":
            return {name: array[i] for name, array in self.arrays.items()}
        session, start, stop = self.span(i)
        whole = self.arrays["x"]
        return {"x": whole[start:stop] if self.kind == "ragged" else whole[session, start:stop]}

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return (self[i] for i in range(len(self)))

    def fingerprint(self, i: int) -> int:
        """Constant: this data never changes."""
        return i

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Every field's file, mapped; as plain arrays, which are faster to slice than ``memmap``."""
        files = {field.name: self.folder / f"{field.name}.npy" for field in self.fields}
        return {name: np.asarray(np.load(path, mmap_mode="r")) for name, path in files.items()}

    @cached_property
    def offsets(self) -> list[int]:
        """Where each ragged sample begins, and the end."""
        offsets: list[int] = np.load(self.folder / "offsets.npy").tolist()
        return offsets

    def span(self, i: int) -> tuple[int, int, int]:
        """Session, first step and end of sample ``i``; ragged samples lie in one session."""
        if self.kind == "ragged":
            return 0, self.offsets[i], self.offsets[i + 1]
        length = self.fields[0].shape[0]
        session, number = divmod(i, _num_windows(self.num_steps, length, self.stride))
        return session, number * self.stride, number * self.stride + length


def signals(num_samples: int) -> Workload:
    """Heart sounds, EEG: short signals of one length."""
    field = Field("x", "float32", (1, 4000))
    return Workload("signals [1, 4000] float32", "fixed", num_samples, 64, (field,))


def volumes(num_samples: int) -> Workload:
    """Patches of CT or MR scans."""
    field = Field("x", "float32", (64, 64, 64))
    return Workload("volumes 64³ float32", "fixed", num_samples, 4, (field,))


def images(num_samples: int) -> Workload:
    """Segmentation: a picture and a mask."""
    fields = (Field("x", "uint8", (512, 512, 3)), Field("mask", "uint8", (512, 512)))
    return Workload("images 512 x 512 x 3 + mask, uint8", "fixed", num_samples, 16, fields)


def recordings(num_samples: int) -> Workload:
    """Of 1 to 10 s at 4 kHz, padded to a batch's longest."""
    field = Field("x", "float32", (0,))
    return Workload("ragged signals of 1 to 10 s, padded", "ragged", num_samples, 64, (field,))


def windows(num_sessions: int, num_steps: int) -> Workload:
    """Windows, overlapping, of long recordings with 16 channels."""
    field, stride = Field("x", "float32", (2000, 16)), 500
    num_samples = num_sessions * _num_windows(num_steps, field.shape[0], stride)
    title = "windows [2000, 16] of sessions"
    return Workload(title, "windows", num_samples, 64, (field,), num_sessions, num_steps, stride)


def rows(num_samples: int) -> Workload:
    """Samples of few bytes: what does it cost to have many?"""
    return Workload("rows [64] float32", "fixed", num_samples, 64, (Field("x", "float32", (64,)),))


def _num_windows(num_steps: int, length: int, stride: int) -> int:
    return (num_steps - length) // stride + 1


def _write_noise(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    num_values = math.prod(shape)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, num_values, _PIECE_VALUES):
            size = min(_PIECE_VALUES, num_values - start)
            noise = (
                rng.random(size, np.float32) if dtype.kind == "f" else rng.integers(0, 256, size, np.uint8)
            )
            file.write(noise.astype(dtype, copy=False).data)
        file.flush()
        os.fsync(file.fileno())  # so that it can leave the page cache
