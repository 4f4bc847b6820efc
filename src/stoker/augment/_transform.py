"""The base of all transforms: what one declares, and how it works on a tensor alone.

A transform is a function of a batch and of the parameters drawn for each of its samples. It declares
in its constructor what it draws, and in its class which roles it changes; the pipeline does the rest:
drawing, choosing rows, keeping dtypes, leaving every other field alone.

    @register("signal")
    class Offset(Transform):
        roles = ("signal",)
        neutral = {"offset": 0.0}

        def __init__(self, offset: Draw = 0.1, *, p: float = 1.0) -> None:
            self.offset = distribution(offset, "offset", number="symmetric")
            super().__init__(p=p, draws={"offset": self.offset})

        def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
            return x + params.like("offset", x)

Every argument of the constructor is kept under its own name, so that a transform can be shown,
written to a config file and read back.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from stoker.augment._distributions import Distribution
from stoker.augment._draws import Params
from stoker.augment._operations import Operation
from stoker.errors import UsageError

Role = Literal["signal", "image", "volume", "mask", "label"]
ROLES: tuple[Role, ...] = get_args(Role)

# dimensions of a field, where its role alone says them; a mask has those of what it belongs to
LAYOUTS: dict[Role, tuple[int, str]] = {
    "signal": (3, "[B, C, T]"),
    "image": (4, "[B, C, H, W]"),
    "volume": (5, "[B, C, D, H, W]"),
}


# a transform's parameters by name; with a number n, a vector of n independent ones
Declared = Mapping[str, Distribution | tuple[Distribution, int]]


def on_host(x: Tensor) -> bool:
    """Whether x is the host's own memory, to be read and written by numpy without anybody waiting."""
    return (
        x.device.type == "cpu"
        and not x.requires_grad
        and x.dtype is not torch.bfloat16  # which numpy does not have
        and not torch.compiler.is_compiling()
    )


class Transform(nn.Module):
    """A change of some fields of a batch, with its own parameters for every sample.

    Class attributes:
        roles: those it changes. The first is taken for a tensor that comes without a role.
        neutral: parameters at which nothing changes. Samples that are not chosen get them.
        every_row: all rows are computed, the neutral ones too, because that is cheaper than picking
            rows out and putting them back. Needs `neutral`, at which `change` must give x bit by bit.
        writes: it has `write`, which on the CPU is called in place of `change`. Needs `neutral`. May be an
            instance's. A subclass that has a `change` of its own is not asked to write.
        loops: it has `operations`, likewise.
        looks: `operations` or `extras` look at a field's values: all before it must have been done by then.
            A subclass that has `extras` of its own is taken to look, unless it says otherwise.
        keeps_shape: False for a transform such as a crop, which then cannot have p below 1.

    Args:
        p: probability with which a sample is changed.
        draws: name of each parameter and its distribution, or (distribution, n) for n independent ones.
        num_noises: keys that `change` needs for noise; see `normal_noise`.
    """

    roles: ClassVar[tuple[Role, ...]]
    neutral: ClassVar[Mapping[str, float]] = {}
    every_row: ClassVar[bool] = False
    writes: bool = False
    loops: bool = False
    looks: ClassVar[bool] = False
    keeps_shape: ClassVar[bool] = True

    def __init__(
        self,
        *,
        p: float = 1.0,
        draws: Declared | None = None,
        num_noises: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise UsageError(f"p must be a probability from 0 to 1, got {p}")
        if p < 1 and not self.keeps_shape:
            raise UsageError(f"{type(self).__name__} changes the shape, so p must be 1, got {p}")
        self.p = p
        self.draws = dict(draws or {})
        self.num_noises = num_noises

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:
        """Change one field, in every row that it is given.

        Gives a new tensor of the same dtype and never writes to x. Signals, images and volumes come
        as float32 or float64; float16 and bfloat16 are widened before and narrowed after.

        Args:
            x: the chosen rows of the field, contiguous or not.
            params: those of the same rows.
            role: the field's.
        """
        raise NotImplementedError

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:
        """Write what `change` would give to `out`: the same bits, without memory of its own.

        Only called where `on_host` says so, so parameters may be looked at. Fresh memory costs more than
        simple arithmetic: its pages are zeroed one by one as they are first touched.

        Args:
            out: of the dtype of x and of `written_shape`, contiguous; may be x itself if that is its shape.
            x: all rows of the field.
            params: of all rows; those not chosen have the neutral ones, which must not change a bit.
            role: the field's.
        """
        raise NotImplementedError

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:
        """What `change` does to a sample, as operations of one compiled loop: with the same bits.

        Called in place of `change` and `write` where `on_host` says so and numba is installed. The loop takes
        a sample through those of several transforms. Needs `neutral`.

        Args:
            x: all rows of the field.
            params: of all rows; those not chosen have the neutral ones, at which operations must do nothing.
            role: the field's.
        """
        raise NotImplementedError

    def written_shape(self, x: Tensor) -> tuple[int, ...]:
        """The shape of what `write` makes of x."""
        return tuple(x.shape)

    def prepare(self, x: Tensor, role: Role) -> Tensor:  # noqa: ARG002 - for those that override it
        """Bring all rows of a field to the dtype and shape that the chosen ones will have.

        Such as uint8 images to float, or class numbers to soft targets. By default nothing.
        """
        return x

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        """More fields for the batch, from the fields before the change and the parameters of all rows.

        One row a sample, which depends on that sample only: a large batch may be asked for in parts.
        Samples that were not chosen have neutral parameters here, so give their `neutral`.
        """
        return {}

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, as they were understood."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    def forward(
        self,
        x: Tensor,
        *,
        index: Any = None,
        epoch: int | Tensor = 0,
        seed: int = 0,
        role: Role | None = None,
    ) -> Tensor:
        """Change a bare tensor: the same as in a pipeline of this transform alone.

        Args:
            x: [B, ...] in the layout of its role.
            index: numbers of the samples, [B]. Without them samples are numbered as they come.
            epoch: makes other parameters for the same samples.
            seed: likewise.
            role: which of `roles` x has; the first, if not given.
        """
        from stoker.augment._pipeline import Pipeline

        alone = self.__dict__.get("_alone")
        if alone is None or alone.seed != seed or alone.roles["x"] != (role or self.roles[0]):
            alone = Pipeline(self, roles={"x": role or self.roles[0]}, seed=seed)
            self.__dict__["_alone"] = alone  # not registered: a transform is no part of itself
        alone.train(self.training)
        changed: Tensor = alone({"x": x}, index=index, epoch=epoch)["x"]
        return changed

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_alone"}

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        shown = [
            f"{name}={value!r}" for name, value in self.arguments().items() if value != defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class Mixing(Transform):
    """A transform that mixes each chosen sample with another of its batch.

    Its partner is the next one in a keyed order of the batch's samples: it depends on which samples
    the batch holds, not on their places in it, and nobody is its own partner unless alone.
    Implement `mix`; `params.partner` [B] has the partner's row, for `extras`.
    """

    def mix(self, x: Tensor, other: Tensor, params: Params, role: Role) -> Tensor:
        """Mix the chosen rows x of a field with their partners' rows; both as the field was before."""
        raise NotImplementedError
