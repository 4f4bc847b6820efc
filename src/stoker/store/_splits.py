"""Named splits: who is in train, who in test. Decided by a hash of the key, and then kept.

Plain: a sample's hash, a number in [0, 1), falls into one of the fractions. By group (patient,
subject, session): the group's hash decides for all its samples, so that no group is ever in two
splits. Stratified: within each label, samples (or groups) take their places in the order of their
hash, each going to the split that is furthest behind its fraction; whoever had a place keeps it, so
adding data never moves an old sample.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.store._index import NO_SPLIT
from stoker.store._manifest import SplitRule


def split_rule(fractions: Mapping[str, float], *, stratify: str | None, group: str | None) -> SplitRule:
    """A checked rule; fractions are positive and sum to at most 1 (the rest is in no split)."""
    if not fractions or len(fractions) >= NO_SPLIT:
        raise UsageError(f"there must be 1 to {NO_SPLIT - 1} splits, got {len(fractions)}")
    for name, fraction in fractions.items():
        if not 0 < fraction <= 1:
            raise UsageError(f"split {name!r} must have a fraction in (0, 1], got {fraction}")
    if sum(fractions.values()) > 1 + 1e-9:
        raise UsageError(
            f"split fractions must sum to at most 1, got {dict(fractions)}, "
            f"which is {sum(fractions.values()):g}"
        )
    in_order = dict(sorted(fractions.items()))  # positions are kept: the order given must not matter
    return SplitRule(fractions=in_order, stratify=stratify, group=group)


def assign_splits(
    rule: SplitRule,
    *,
    keys: Sequence[str],
    labels: Sequence[object] | None,
    groups: Sequence[object] | None,
    previous: NDArray[np.int16],
) -> NDArray[np.uint8]:
    """The split of each sample, as its position in ``rule.fractions``, or NO_SPLIT.

    ``previous`` holds the places given before under the same rule, -1 for a new sample; only
    stratified splits need them.
    """
    fractions = np.array(list(rule.fractions.values()))
    units: Sequence[object] = keys if groups is None else groups
    hashes = np.fromiter(
        (xxhash.xxh3_64_intdigest(str(unit).encode()) for unit in units), np.uint64, len(keys)
    )
    if labels is None:
        place = hashes / 2.0**64
        split = np.searchsorted(np.cumsum(fractions), place, side="right")
        return np.where(split < len(fractions), split, NO_SPLIT).astype(np.uint8)
    return _stratified(fractions, hashes, labels, previous)


def _stratified(
    fractions: NDArray[np.float64],
    hashes: NDArray[np.uint64],
    labels: Sequence[object],
    previous: NDArray[np.int16],
) -> NDArray[np.uint8]:
    """Units are the distinct hashes (samples or groups); a group counts with all its samples."""
    units, member, sizes = np.unique(hashes, return_inverse=True, return_counts=True)
    _, codes = np.unique(np.array([str(label) for label in labels]), return_inverse=True)
    stratum = _most_frequent(member, codes)
    place = np.full(len(units), -1, np.int16)
    had = previous >= 0
    if had.any():  # a new sample of an old group goes where most of its group is
        present, within = np.unique(member[had], return_inverse=True)
        place[present] = _most_frequent(within, previous[had].astype(np.intp))
    # the last share belongs to no split
    shares = np.append(fractions, max(0.0, 1.0 - fractions.sum()))
    filled = np.zeros((int(codes.max(initial=-1)) + 1, len(shares)))
    kept = np.flatnonzero(place >= 0)
    columns = np.minimum(place[kept], len(fractions))
    np.add.at(filled, (stratum[kept], columns), sizes[kept])
    for unit in np.flatnonzero(place < 0):  # units are sorted by hash
        row = filled[stratum[unit]]
        behind = np.where(shares > 1e-9, shares * (row.sum() + sizes[unit]) - row, -np.inf)
        chosen = int(behind.argmax())
        row[chosen] += sizes[unit]
        place[unit] = chosen if chosen < len(fractions) else NO_SPLIT
    return place[member].astype(np.uint8)


def _most_frequent(member: NDArray[np.intp], codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each unit, the label that most of its samples have (the first of equals)."""
    num_labels = int(codes.max(initial=0)) + 1
    pairs, counts = np.unique(member * num_labels + codes, return_counts=True)
    unit, label = pairs // num_labels, pairs % num_labels
    best_first = np.lexsort((label, -counts, unit))
    _, first = np.unique(unit[best_first], return_index=True)
    chosen: NDArray[np.intp] = label[best_first][first]
    return chosen
