"""Which random number belongs to what: the columns of a pipeline's packed draws.

A number's key is made of the sample's key and of (place of its transform in the pipeline, number of
the draw in it), so neither another transform's draws nor the batch can move it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment import _operations
from stoker.augment._distributions import Distribution, Uniform
from stoker.augment._draws import Column, Draws, Params, Place
from stoker.augment._keys import Integers64, column_key, host_uniforms, mix, uniforms
from stoker.augment._transform import Mixing, Transform

# streams of a transform; its values have all numbers from there on
_CHOSEN, _PARTNER, _NOISE, _VALUE = range(4)


class _Kind(NamedTuple):
    """All columns with one kind of distribution, mapped together."""

    kind: type[Distribution]
    columns: Tensor  # int64 [k]
    numbers: Tensor  # float64 [m, k]


class _Tables(NamedTuple):
    """What drawing needs on a device."""

    streams: Tensor  # int64 [P + K + M + N], added to a sample's key
    probabilities: Tensor  # float64 [P]
    kinds: tuple[_Kind, ...]
    owner: Tensor  # int64 [K], the transform of each value
    neutral: Tensor  # float64 [K]
    fixed: Tensor  # bool [K], values without a neutral one: drawn even where not chosen


class Layout:
    """The columns of some transforms in a row.

    Args:
        transforms: in the order of the pipeline.
        stages: which of them are computed together.
    """

    def __init__(self, transforms: Sequence[Transform], stages: Sequence[tuple[int, ...]]) -> None:
        self._stages = [list(stage) for stage in stages]
        self._places: list[Place] = []
        self._counts: list[int] = []
        self._host = self._tables(transforms)
        self._uniform = _uniform_tables(self._host)
        self._on_device: dict[torch.device, _Tables] = {}

    def host_draws(self, keys: Integers64) -> Draws:
        """Draw on the host, which then knows the rows of every stage; keys [B]."""
        num_first, num_partners, num_noises = self._counts
        num_transforms = len(self._places)
        if self._uniform is not None and _operations.are_compiled():
            chosen = np.empty((len(keys), num_transforms), np.bool_)
            values = np.empty((len(keys), num_first - num_transforms), np.float32)
            others = np.empty((len(keys), num_partners + num_noises), np.int64)
            _operations.draw(keys, self._uniform, chosen, values, others)
        else:
            bits = mix(keys[:, None] + self._host.streams.numpy())
            uniform, others = host_uniforms(bits[:, :num_first]), bits[:, num_first:]
            chosen = uniform[:, :num_transforms] < self._host.probabilities.numpy()
            values = _host_values(uniform[:, num_transforms:], self._host, chosen)
        return Draws(
            values=torch.from_numpy(values),
            noise_keys=torch.from_numpy(others[:, num_partners:]),
            chosen=torch.from_numpy(chosen),
            partners=_partners(torch.from_numpy(others[:, :num_partners])),
            rows=tuple(_rows_of(chosen, stage) for stage in self._stages),
        )

    def device_draws(self, keys: Tensor) -> Draws:
        """Draw the same on the device of keys [B]; nobody knows the rows."""
        tables = self._host
        if keys.device.type != "cpu":
            if keys.device not in self._on_device:
                self._on_device[keys.device] = _moved(self._host, keys.device)
            tables = self._on_device[keys.device]
        return self._draws(mix(keys[:, None] + tables.streams), tables)

    def params(self, draws: Draws, number: int) -> Params:
        """One transform's parameters for all rows."""
        return Params(draws, self._places[number])

    def _draws(self, bits: Tensor, tables: _Tables) -> Draws:
        first_bits, partner_bits, noise_keys = torch.split(bits, self._counts, 1)
        uniform = uniforms(first_bits)
        num_transforms = len(self._places)
        chosen = uniform[:, :num_transforms] < tables.probabilities
        values = _values(uniform[:, num_transforms:], tables, chosen)
        return Draws(values, noise_keys, chosen, _partners(partner_bits), None)

    def _tables(self, transforms: Sequence[Transform]) -> _Tables:
        distributions: list[Distribution] = []
        neutral: list[float] = []
        owner: list[int] = []
        streams: dict[int, list[int]] = {kind: [] for kind in range(4)}
        for position, transform in enumerate(transforms):
            first_value, first_noise = len(distributions), len(streams[_NOISE])
            columns = {}
            for name, drawn in transform.draws.items():
                made, count = drawn if isinstance(drawn, tuple) else (drawn, None)
                start = len(distributions)
                where = start if count is None else slice(start, start + count)
                columns[name] = Column(where, made.whole)
                distributions += [made] * (1 if count is None else count)
                neutral += [transform.neutral.get(name, np.nan)] * (1 if count is None else count)
            num_values = len(distributions) - first_value
            owner += [position] * num_values
            streams[_VALUE] += [column_key(position, _VALUE + number) for number in range(num_values)]
            noise_streams = [column_key(position, _NOISE, number) for number in range(transform.num_noises)]
            streams[_NOISE] += noise_streams
            streams[_CHOSEN].append(column_key(position, _CHOSEN))
            partner = None
            if isinstance(transform, Mixing):
                partner = len(streams[_PARTNER])
                streams[_PARTNER].append(column_key(position, _PARTNER))
            self._places.append(Place(columns, slice(first_noise, len(streams[_NOISE])), partner))
        first = streams[_CHOSEN] + streams[_VALUE]
        self._counts = [len(first), len(streams[_PARTNER]), len(streams[_NOISE])]
        return _Tables(
            streams=torch.tensor(first + streams[_PARTNER] + streams[_NOISE], dtype=torch.int64),
            probabilities=torch.tensor([transform.p for transform in transforms], dtype=torch.float64),
            kinds=_by_kind(distributions),
            owner=torch.tensor(owner, dtype=torch.int64),
            neutral=torch.tensor(neutral, dtype=torch.float64),
            fixed=torch.tensor(neutral, dtype=torch.float64).isnan(),
        )


def _uniform_tables(tables: _Tables) -> tuple[NDArray[Any], ...] | None:
    """What the compiled loop draws with; None where not all distributions are uniform."""
    if [each.kind for each in tables.kinds] != [Uniform]:
        return None
    low, high = tables.kinds[0].numbers
    arrays = (tables.streams, tables.probabilities, tables.owner, low, high - low, tables.neutral)
    return tuple(array.numpy() for array in arrays)


def _by_kind(distributions: Sequence[Distribution]) -> tuple[_Kind, ...]:
    groups: dict[tuple[type[Distribution], int], list[int]] = {}
    for column, made in enumerate(distributions):
        groups.setdefault((type(made), len(made.numbers)), []).append(column)
    return tuple(
        _Kind(
            kind,
            torch.tensor(columns, dtype=torch.int64),
            torch.tensor(
                [distributions[column].numbers for column in columns], dtype=torch.float64
            ).T.contiguous(),
        )
        for (kind, _), columns in groups.items()
    )


def _values(uniform: Tensor, tables: _Tables, chosen: Tensor) -> Tensor:
    """Parameters from uniform numbers, neutral where not chosen: float32 [B, K].

    In float64 up to the end, so that another order of the same samples rounds to the same bits.
    """
    if not tables.kinds:
        return uniform.to(torch.float32)
    keep = chosen.index_select(1, tables.owner) | tables.fixed
    return torch.where(keep, _quantiles(uniform, tables), tables.neutral).to(torch.float32)


def _host_values(
    uniform: NDArray[np.float64], tables: _Tables, chosen: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The same with numpy, a call of which costs a fraction of one of torch's."""
    if not tables.kinds:
        return uniform.astype(np.float32)
    keep = chosen.take(tables.owner.numpy(), 1) | tables.fixed.numpy()
    values = _quantiles(torch.from_numpy(uniform), tables).numpy()
    return np.where(keep, values, tables.neutral.numpy()).astype(np.float32)


def _quantiles(uniform: Tensor, tables: _Tables) -> Tensor:
    """Every column at its own distribution."""
    if len(tables.kinds) == 1:
        return tables.kinds[0].kind.quantile(uniform, tables.kinds[0].numbers)
    values = torch.empty_like(uniform)
    for kind, columns, numbers in tables.kinds:
        values = values.index_copy(1, columns, kind.quantile(uniform.index_select(1, columns), numbers))
    return values


def _partners(bits: Tensor) -> Tensor:
    """The next row in the order of these bits: int64 [B, M]."""
    if not bits.shape[1]:
        return bits
    order = bits.argsort(dim=0, stable=True)
    return torch.empty_like(order).scatter(0, order, order.roll(-1, 0))


def _rows_of(chosen: NDArray[np.bool_], stage: Sequence[int]) -> Tensor | None:
    """Rows that one of a stage's transforms touches; None for all."""
    touched = chosen[:, stage[0]]
    for place in stage[1:]:
        touched = touched | chosen[:, place]
    rows = touched.nonzero()[0]
    return None if len(rows) == len(touched) else torch.from_numpy(rows)


def _moved(tables: _Tables, device: torch.device) -> _Tables:
    kinds = tuple(
        _Kind(kind, columns.to(device), numbers.to(device)) for kind, columns, numbers in tables.kinds
    )
    return _Tables(
        streams=tables.streams.to(device),
        probabilities=tables.probabilities.to(device),
        kinds=kinds,
        owner=tables.owner.to(device),
        neutral=tables.neutral.to(device),
        fixed=tables.fixed.to(device),
    )
