"""Which samples are trained on: splits by patient with a seed, and a fraction of the labelled patients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.store import Store


def subset(store: Store, name: str, *, fractions: Mapping[str, float], seed: int | None, field: str) -> Store:
    """The samples of one split: the store's own, or, with a seed, one drawn by it.

    Raises:
        UsageError: the split has no sample.
    """
    if seed is None:
        found = store.split(name)
    else:
        place = split_patients(store.column("patient"), store.column(field), fractions, seed)
        found = store.select(np.flatnonzero(place == list(fractions).index(name)))
    if not len(found):
        raise UsageError(f"the split {name!r} of {store.path} is empty; give it more recordings, or a share")
    return found


def split_patients(
    patients: Sequence[str], labels: NDArray[Any], fractions: Mapping[str, float], seed: int
) -> NDArray[np.int64]:
    """For each sample the number of its split, -1 for none; no patient is in two.

    Within each label patients take their places by a hash of (seed, patient): the shares hold among the
    patients of every label, to rounding. A patient with several labels counts for the most frequent.
    """
    place = np.full(len(labels), -1, np.int64)
    edges = np.cumsum(list(fractions.values()))
    for group in _by_label(patients, labels, seed):
        for rank, members in enumerate(group):
            number = int(np.searchsorted(edges, (rank + 0.5) / len(group), side="right"))
            place[members] = number if number < len(edges) else -1
    return place


def labelled(store: Store, field: str, *, fraction: float = 1.0, seed: int = 0) -> Store:
    """The samples that have a label, of `fraction` of the patients of each label (at least one)."""
    labels = np.asarray(store.column(field))
    known = store.select(np.flatnonzero(labels >= 0))
    if not len(known):
        raise UsageError(f"no sample of {store.path} has a label in {field!r}")
    if fraction == 1:
        return known
    groups = _by_label(known.column("patient"), np.asarray(known.column(field)), seed)
    kept = [members for group in groups for members in group[: max(1, round(fraction * len(group)))]]
    return known.select(np.sort(np.concatenate(kept)))


def _by_label(patients: Sequence[str], labels: NDArray[Any], seed: int) -> list[list[NDArray[np.int64]]]:
    """For each label its patients in the order of their hash, each as the numbers of its samples."""
    names, member = np.unique(np.asarray(patients, dtype=object).astype(str), return_inverse=True)
    order = np.argsort(member, kind="stable")
    samples = np.split(order, np.cumsum(np.bincount(member))[:-1])
    groups: dict[int, list[tuple[int, NDArray[np.int64]]]] = {}
    for name, numbers in zip(names, samples, strict=True):
        own, counts = np.unique(labels[numbers], return_counts=True)
        key = xxhash.xxh3_64_intdigest(f"{seed} {name}".encode())
        groups.setdefault(int(own[counts.argmax()]), []).append((key, numbers))
    return [
        [numbers for _, numbers in sorted(groups[label], key=lambda pair: pair[0])]
        for label in sorted(groups)
    ]
