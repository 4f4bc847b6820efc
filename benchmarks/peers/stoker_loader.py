"""Stoker: a store, and loaders of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import stoker
from peers.serving import Epoch, serve
from peers.workloads import Workload


class Sessions:
    """The long recordings of which windows are taken."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __len__(self) -> int:
        return self.workload.num_sessions

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": self.workload.arrays["x"][i]}

    def fingerprint(self, i: int) -> int:
        """Constant: this data never changes."""
        return i


def prepare(workload: Workload) -> Mapping[str, Epoch]:
    """The store, and loaders of it by number of threads; two more open it for every epoch anew."""
    path = workload.folder / "packed.stoker"
    source = Sessions(workload) if workload.kind == "windows" else workload
    packed: Any = stoker.pack(source, path, progress=False)
    if workload.kind == "windows":
        from stoker.loader import _windows

        length = workload.fields[0].shape[0]
        packed = _windows.windows(packed, length=length, stride=workload.stride, time_axis=0)
    size = workload.batch_size
    return {
        "2 threads": _epochs(stoker.Loader(packed, size, num_workers=2)),
        "1 thread": _epochs(stoker.Loader(packed, size, num_workers=1)),
        "opened anew, shuffled": lambda: _anew(path, size, shuffle=True),
        "opened anew, quasi-random": lambda: _anew(path, size, shuffle="quasi"),
    }


def _epochs(loader: stoker.Loader) -> Epoch:
    return lambda: loader


def _anew(path: Path, batch_size: int, *, shuffle: Literal[True, "quasi"]) -> Iterator[Any]:
    """Nothing stays mapped between epochs: only then can the files leave the page cache."""
    with stoker.Loader(stoker.open(path), batch_size, shuffle=shuffle) as loader:
        yield from loader


if __name__ == "__main__":
    serve("stoker", prepare)
