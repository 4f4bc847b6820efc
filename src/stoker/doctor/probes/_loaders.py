"""The DataLoaders of a run: which there are, what they are called, how they are set."""

import re
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from stoker.doctor._record import Loader, Place, Role


@dataclass(eq=False)
class SeenLoader:
    """One DataLoader of the user's, or several that one line makes one after another."""

    number: int
    place: Place | None
    name: str | None  # what it is bound to, unique among loaders
    reference: Callable[[], Any]  # gives it as long as it lives; None afterwards
    settings: dict[str, Any]
    num_epochs: int = 0
    num_made: int = 1  # of those several
    trains: bool = False  # a backward pass followed one of its batches
    is_torch: bool = True  # a DataLoader; else an iterator of another library

    def refresh(self) -> None:
        """Read the settings again, as far as the DataLoader still lives."""
        loader = self.reference()
        if isinstance(loader, DataLoader):
            self.settings = describe(loader)


class SeenLoaders:
    """Every DataLoader that was made or iterated, numbered in that order."""

    def __init__(self) -> None:
        self.all: list[SeenLoader] = []
        self._by_id: dict[int, tuple[weakref.ReferenceType[Any], SeenLoader]] = {}

    def see(
        self,
        loader: "DataLoader[Any]",
        place: Place | None,
        name: str | None,
        *,
        is_over: Container[int] = (),
    ) -> SeenLoader:
        """Take note of a DataLoader that was made.

        One that takes the place of a dead one, of one over the same data set that was iterated, or of one
        whose number `is_over`, made by the same line under the same name, is the same to us: scripts that
        make a new DataLoader for every epoch have one loader, not hundreds.
        """
        for seen in self.all:
            last = seen.reference()
            is_replaced = seen.num_epochs > 0 and getattr(last, "dataset", None) is loader.dataset
            is_gone = last is None or is_replaced or seen.number in is_over
            if is_gone and seen.place == place is not None and _plain(seen.name) == name:
                seen.reference = weakref.ref(loader)
                seen.num_made += 1
                break
        else:
            seen = SeenLoader(len(self.all), place, self._unique(name), weakref.ref(loader), {})
            self.all.append(seen)
        seen.settings = describe(loader)
        self._by_id[id(loader)] = (weakref.ref(loader), seen)
        return seen

    def see_iterator(self, iterator: Any) -> SeenLoader:
        """Take note of a loader of which only a running iterator is known."""
        if not hasattr(iterator, "_dataset"):
            return self._see_other(iterator.loader)
        seen = SeenLoader(len(self.all), None, None, lambda: None, _describe_iterator(iterator))
        self.all.append(seen)
        return seen

    def get(self, loader: "DataLoader[Any]") -> SeenLoader:
        """The one that was seen; a DataLoader made before anyone looked is seen now."""
        reference, seen = self._by_id.get(id(loader), (None, None))
        if seen is None or reference is None or reference() is not loader:
            return self.see(loader, None, None)
        return seen

    def of_dataset(self, dataset: object) -> SeenLoader | None:
        """The living loader of this data set that was made first: frameworks make theirs from it."""
        for seen in self.all:
            loader = seen.reference()
            if seen.is_torch and loader is not None and loader.dataset is dataset:
                return seen
        return None

    def inherit(self, loader: "DataLoader[Any]", source: SeenLoader) -> SeenLoader:
        """A framework made this one from the user's: it goes by the user's name and place."""
        source.reference = weakref.ref(loader)
        source.settings = describe(loader)
        self._by_id[id(loader)] = (weakref.ref(loader), source)
        return source

    def _see_other(self, loader: Any) -> SeenLoader:
        """A loader that is not torch's: its iterators are its epochs."""
        reference, seen = self._by_id.get(id(loader), (None, None))
        if seen is None or reference is None or reference() is not loader:
            reference = weakref.ref(loader)
            seen = SeenLoader(len(self.all), None, None, reference, _describe_other(loader), is_torch=False)
            self.all.append(seen)
            self._by_id[id(loader)] = (reference, seen)
        return seen

    def records(self, roles: dict[int, Role]) -> dict[int, Loader]:
        """What a record says of each, by its number."""
        taken = {seen.name for seen in self.all if seen.name}
        found = {}
        for seen in self.all:
            seen.refresh()
            role = roles.get(seen.number, "unused")
            name = seen.name or _free(role if role != "unused" else "loader", taken)
            taken.add(name)
            found[seen.number] = Loader(
                name=name,
                role=role,
                made_at=seen.place,
                num_epochs=seen.num_epochs,
                num_made=seen.num_made,
                **seen.settings,
            )
        return found

    def _unique(self, name: str | None) -> str | None:
        return _free(name, {seen.name for seen in self.all if seen.name}) if name else None


def _plain(name: str | None) -> str | None:
    """The name without the number that made it unique."""
    return re.sub(r"-\d+$", "", name) if name else None


def _free(name: str, taken: set[str] | set[str | None]) -> str:
    if name not in taken:
        return name
    return next(f"{name}-{number}" for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)


def describe(loader: "DataLoader[Any]") -> dict[str, Any]:
    """A DataLoader's settings under the names that a record gives them. Draws no random number."""
    dataset = loader.dataset
    is_iterable = isinstance(dataset, IterableDataset)
    num_samples = _length(dataset)
    batch_size = loader.batch_size
    if batch_size is None:
        batch_size = getattr(loader.batch_sampler, "batch_size", None)
    if not is_iterable:
        num_batches = _length(loader._index_sampler)  # noqa: SLF001 - what len(loader) asks
    elif num_samples is None or not batch_size:
        num_batches = num_samples
    else:  # len(loader) would make the DataLoader warn of data sets whose length is wrong
        num_batches = num_samples // batch_size if loader.drop_last else -(-num_samples // batch_size)
    collate = loader.collate_fn
    return {
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": bool(loader.pin_memory),
        "in_order": bool(getattr(loader, "in_order", True)),
        "shuffles": _shuffles(loader),
        "drop_last": bool(loader.drop_last),
        "start_method": _start_method(loader),
        "collate": getattr(collate, "__qualname__", type(collate).__name__),
        "dataset": type(dataset).__name__,
        "is_iterable": is_iterable,
        "num_samples": num_samples,
        "num_batches": num_batches,
    }


def _describe_iterator(iterator: Any) -> dict[str, Any]:
    dataset, num_workers = iterator._dataset, iterator._num_workers  # noqa: SLF001
    return {
        "batch_size": getattr(iterator._index_sampler, "batch_size", None),  # noqa: SLF001
        "num_workers": num_workers,
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "persistent_workers": bool(iterator._persistent_workers),  # noqa: SLF001
        "pin_memory": bool(iterator._pin_memory),  # noqa: SLF001
        "in_order": bool(getattr(iterator, "_in_order", True)),
        "shuffles": False,
        "drop_last": bool(iterator._drop_last),  # noqa: SLF001
        "start_method": "",
        "collate": getattr(iterator._collate_fn, "__qualname__", ""),  # noqa: SLF001
        "dataset": type(dataset).__name__,
        "is_iterable": isinstance(dataset, IterableDataset),
        "num_samples": _length(dataset),
        "num_batches": None,
    }


def _describe_other(loader: Any) -> dict[str, Any]:
    """Of a loader that is not torch's: what it tells. It has no settings that we could advise on."""
    return {
        "batch_size": getattr(loader, "batch_size", None),
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
        "in_order": True,
        "shuffles": False,
        "drop_last": False,
        "start_method": "",
        "collate": "",
        "dataset": f"{type(loader).__module__.partition('.')[0]}.{type(loader).__name__}",
        "is_iterable": True,
        "num_samples": None,
        "num_batches": _length(loader),
    }


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # noqa: BLE001 - the user's code, which may raise anything when it has no length
        return None


def _shuffles(loader: "DataLoader[Any]") -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return False
    sampler = loader.sampler
    if loader.batch_sampler is not None:
        sampler = getattr(loader.batch_sampler, "sampler", sampler)
    return not isinstance(sampler, SequentialSampler) and bool(getattr(sampler, "shuffle", True))


def _start_method(loader: "DataLoader[Any]") -> str:
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # asking without allow_none would fix the default, and a later set_start_method would fail
    chosen = torch.multiprocessing.get_start_method(allow_none=True)
    return str(chosen or torch.multiprocessing.get_all_start_methods()[0])
