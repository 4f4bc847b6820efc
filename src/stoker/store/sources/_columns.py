"""Labels and the columns of a CSV file as typed, compact columns."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stoker.store._strings import Strings

Column = NDArray[np.int64] | NDArray[np.float64] | Strings

LABEL = "y"  # the field that holds the label
NO_CLASS = -1


def number_column(values: Sequence[str]) -> NDArray[np.int64] | NDArray[np.float64] | None:
    """The values as int64 if all are integers, as float64 (empty: nan) if all are numbers.

    None if some are neither, or are integers beyond 64 bits: those are names, and as floats they
    would lose digits.
    """
    if any("_" in value for value in values):  # int("1_000") is a number to Python only
        return None
    try:
        return np.array([int(value) for value in values], np.int64)
    except OverflowError:
        return None
    except ValueError:
        pass
    try:
        return np.array([float(value.strip() or "nan") for value in values], np.float64)
    except ValueError:
        return None


def class_column(names: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Each name's number among the sorted names, and those; an empty name gets NO_CLASS."""
    classes = sorted(set(names) - {""})
    number = {name: i for i, name in enumerate(classes)} | {"": NO_CLASS}
    return np.array([number[name] for name in names], np.int64), classes
