"""MATLAB files, v4 to v7.3, with the same arrays whatever the version they were saved in.

Arrays have MATLAB's sizes and element order and the type of their MATLAB class, which takes some
care with either kind of file. By default axes of length 1 are dropped, so that MATLAB's N x 1 is
[N] and its 1 x 1 a scalar.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SourceError, UsageError
from stoker.store.sources._matlab_classic import classic_variables
from stoker.store.sources._matlab_hdf5 import hdf5_variables
from stoker.store.sources._nearest import did_you_mean, listed
from stoker.store.sources._reader import Reader, Sample, checked_names

Variable = Callable[[], NDArray[Any] | str] | str
"""A variable: how to read it, or the words that say why it cannot be a field."""


@dataclass(frozen=True, kw_only=True)
class MatlabReader(Reader):
    """A field per numeric, logical or char variable, the fields of structs joined by dots.

    ``variables`` chooses by those names (a struct's name means all that is in it). What is neither
    numbers nor one text (cells, struct arrays, sparse matrices, objects) is left out; asked for by
    name, it makes the sample a bad one. ``squeeze=False`` keeps the axes of length 1.
    """

    kind: ClassVar[str] = "MATLAB"
    suffixes: ClassVar[tuple[str, ...]] = (".mat",)
    library: ClassVar[str] = "scipy"
    extra: ClassVar[str] = "matlab"

    variables: Sequence[str] | None = None
    squeeze: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", checked_names("variables", self.variables))
        if not isinstance(self.squeeze, bool):
            raise UsageError(f"squeeze must be True or False, got {self.squeeze!r}")

    def read(self, path: str) -> Sample:
        """The chosen variables; of a v7.3 file nothing else is read."""
        import h5py

        if not h5py.is_hdf5(path):
            return self._choose(classic_variables(path, self.variables))
        with h5py.File(path, "r") as file:
            return self._choose(dict(hdf5_variables(file)))

    def _choose(self, found: dict[str, Variable]) -> Sample:
        if self.variables is None:
            chosen = found
        else:
            chosen = {}
            for name in self.variables:
                chosen |= _asked_for(name, found)
        sample = {
            name: self._plain(variable())
            for name, variable in chosen.items()
            if not isinstance(variable, str)
        }
        if not sample:
            refused = [f"{name} ({why})" for name, why in found.items()]
            raise SourceError(f"no variable in it is numbers or one text: {listed(refused)}")
        return sample

    def _plain(self, value: NDArray[Any] | str) -> NDArray[Any] | str:
        if isinstance(value, str):
            return value
        value = np.squeeze(value) if self.squeeze else value
        return np.asarray(value, value.dtype.newbyteorder("="), order="C")


def _asked_for(name: str, found: dict[str, Variable]) -> dict[str, Variable]:
    chosen = {key: variable for key, variable in found.items() if f"{key}.".startswith(f"{name}.")}
    if not chosen:
        raise SourceError(
            f"there is no variable {name!r}{did_you_mean(name, found)} (variables: {listed(found)})"
        )
    if all(isinstance(variable, str) for variable in chosen.values()):
        raise SourceError(f"variable {name!r} is {next(iter(chosen.values()))}, not numbers or one text")
    return chosen
