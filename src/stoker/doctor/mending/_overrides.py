"""Other settings for a script's DataLoaders and threads, applied in its process: no file is touched."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stoker.doctor._record import Place


@dataclass(frozen=True)
class LoaderOverride:
    """What changes about the DataLoaders that one line of the user's code makes."""

    file: str
    line: int
    keywords: dict[str, Any] = field(default_factory=dict)  # of DataLoader(...)
    wrap_dataset: Callable[[Any], Any] | None = None  # gives the data set to use instead
    name: str | None = None  # only this one of several that the line makes: see `Loader.name`

    def fits(self, place: Place | None, name: str | None) -> bool:
        """True for a DataLoader made at this place, under this name."""
        if place is None or place.line != self.line or os.path.realpath(self.file) != place.file:
            return False
        return self.name is None or name is None or self.name == name


@dataclass(frozen=True)
class Overrides:
    """Everything that a run is to do otherwise than its script says."""

    loaders: tuple[LoaderOverride, ...] = ()
    torch_threads: int | None = None  # of the main process; the script may still set its own

    def apply(
        self, signature: inspect.Signature, arguments: dict[str, Any], place: Place | None, name: str | None
    ) -> dict[str, Any]:
        """DataLoader's arguments by name, as they are to be; `arguments` is not changed.

        Settings that cannot be together with the new ones go: without workers there is nothing to
        prefetch, to keep or to wait for.
        """
        found = [override for override in self.loaders if override.fits(place, name)]
        result = dict(arguments)
        for override in found:
            result.update(
                {key: value for key, value in override.keywords.items() if key in signature.parameters}
            )
            if override.wrap_dataset is not None:
                result["dataset"] = override.wrap_dataset(result["dataset"])
        if found and not result.get("num_workers"):
            for keyword in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                result.pop(keyword, None)
        return result

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Give torch that many threads, and back what it had."""
        if self.torch_threads is None:
            yield
            return
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.torch_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
