"""Is a dataset random, is what is cached still what it gives? Two samples are compared.

Random numbers of Python, NumPy and torch are set differently for each computation, and are afterwards
as they were.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from stoker.errors import StoreMismatchError
from stoker.loader._cache_codec import copy, encode, place
from stoker.loader._cache_source import Source
from stoker.loader._seeding import seeded

_UNLIKELY_SEED = 0x7F4A_7C15  # a small one may be the user's own, and then nothing would differ
_TOLERANCE = 1e-3  # of the largest value: other processors and thread counts round differently


def warn_if_random(source: Source, number: int, sample: Any) -> bool:
    """Compute the sample again; warn, and say True, if it is not the same."""
    with seeded(_UNLIKELY_SEED + 2 * number):
        (again,) = source.compute([number])
    where = difference(copy(sample), copy(again), exact=True)
    if where is not None:
        warnings.warn(
            f"sample {number} of {source.name} is another each time it is computed, at {where}: "
            "the cache freezes what is random. Augment behind the cache instead, or say check=False",
            stacklevel=2,
        )
    return where is not None


def refuse_if_stale(source: Source, number: int, cached: Any, folder: Path) -> None:
    """Compute the sample, and once more to see whether it is random, and compare it with the cached one.

    Raises:
        StoreMismatchError: it is another, by more than rounding.
    """
    with seeded(_UNLIKELY_SEED + 2 * number + 1):
        (now,) = source.compute([number])
    if warn_if_random(source, number, now):
        return
    where = difference(cached, copy(now), exact=False)
    if where is not None:
        raise StoreMismatchError(
            f"sample {number} cached in {folder} is not the one that {source.name} gives now, "
            f"they differ at {where}: its code or files have changed, or it is another dataset; "
            "delete that folder, or give another path"
        )


def difference(left: Any, right: Any, *, exact: bool) -> str | None:
    """The first place where two samples differ, as ``['x'][0]``; None if they are the same.

    Args:
        left: a sample that can be cached.
        right: another one.
        exact: to the bit; else real and complex numbers may differ by rounding.
    """
    found = _difference(left, right, (), exact=exact)
    return None if found is None else place(found)


def _difference(left: Any, right: Any, path: tuple[Any, ...], *, exact: bool) -> tuple[Any, ...] | None:
    if type(left) is not type(right):
        return path
    if isinstance(left, dict):
        if list(left) != list(right):
            return path
        pairs = [(key, item, right[key]) for key, item in left.items()]
    elif isinstance(left, list | tuple):
        if len(left) != len(right):
            return path
        pairs = [(i, *both) for i, both in enumerate(zip(left, right, strict=True))]
    else:
        return None if _is_same(left, right) or (not exact and _is_close(left, right)) else path
    for step, one, other in pairs:
        found = _difference(one, other, (*path, step), exact=exact)
        if found is not None:
            return found
    return None


def _is_same(left: Any, right: Any) -> bool:
    return encode(left) == encode(right)


def _is_close(left: Any, right: Any) -> bool:
    if hasattr(left, "is_floating_point") and left.is_floating_point():
        left, right = left.double(), right.double()  # bfloat16 is unknown to NumPy
    one, other = np.asarray(left), np.asarray(right)
    if one.dtype != other.dtype or one.shape != other.shape or one.dtype.kind not in "fc":
        return False
    finite = np.abs(one[np.isfinite(one)])
    return np.allclose(one, other, rtol=0, atol=_TOLERANCE * finite.max(initial=0), equal_nan=True)
