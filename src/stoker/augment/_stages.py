"""Running one stage of a pipeline: on the rows that were chosen, or on all of them.

A stage is one transform, or neighbours in geometry that share one sampling. Where the host knows
the chosen rows, only these are taken out, changed and put back; a transform that writes goes over
the field itself; those that are operations of the compiled loop go through it together. Else every
row is changed, and each takes the changed or the old value: more work, but shapes and operators that
never vary, as a compiler needs them. All ways give the same bits.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stoker.augment import _operations
from stoker.augment._draws import Params
from stoker.augment._geometry import Geometric, change_together, joint_sampling
from stoker.augment._memory import Memory
from stoker.augment._transform import LAYOUTS, Mixing, Role, Transform, on_host
from stoker.errors import UsageError


@dataclass(frozen=True, eq=False)
class Stage:
    """Transforms that run together, their places in the pipeline, and the fields they change."""

    transforms: tuple[Transform, ...]
    places: tuple[int, ...]
    roles: dict[str, Role]

    @functools.cached_property
    def writes(self) -> bool:
        """Whether its transform can write its result where it is told."""
        transform = self.transforms[0]
        return len(self.transforms) == 1 and transform.writes and _is_as_new(transform, "write", "change")

    @functools.cached_property
    def loops(self) -> bool:
        """Whether its transform can say what it does as operations of the compiled loop."""
        transform = self.transforms[0]
        return (
            len(self.transforms) == 1
            and transform.loops
            and _is_as_new(transform, "operations", "change")
            and _is_as_new(transform, "operations", "write")
        )

    @functools.cached_property
    def has(self) -> frozenset[str]:
        """Which of the methods "prepare" and "extras" its transforms have of their own."""
        kinds = [type(each) for each in self.transforms]
        names = ("prepare", "extras")
        return frozenset(n for n in names if any(getattr(k, n) is not getattr(Transform, n) for k in kinds))

    @functools.cached_property
    def looks(self) -> bool:
        """Whether its transforms look at the values of fields before they are changed."""
        return any(each.looks or not _is_as_new(each, "looks", "extras") for each in self.transforms)

    def follows(self, before: "Stage") -> bool:
        """Whether the loop can take a sample through both: nobody needs what is between them."""
        return self.loops and before.loops and "prepare" not in self.has and not self.looks

    @property
    def always(self) -> bool:
        """Whether no sample is left out, or leaving out costs more than it saves."""
        return any(transform.p == 1 for transform in self.transforms) or (
            len(self.transforms) == 1 and self.transforms[0].every_row
        )


def _is_as_new(transform: Transform, name: str, other: str) -> bool:
    """Whether an attribute is of the other's class or of a subclass, which may replace one of two alone."""
    for kind in type(transform).__mro__:
        if name in vars(kind) or other in vars(kind):
            return name in vars(kind)
    return False


class Fields:
    """The fields of a batch on their way through the stages.

    Knows which tensors were made here: only these may be written to, and only while no gradient
    needs their old values.

    Args:
        batch: fields by name.
        results: where to write what comes out of some fields, if it is of that shape and dtype.
        memory: where else.
    """

    def __init__(self, batch: Mapping[str, Tensor], results: Mapping[str, Tensor], memory: Memory) -> None:
        self.now: dict[str, Tensor] = dict(batch)
        self._results = results
        self._memory = memory
        self._dtypes: dict[str, torch.dtype] = {}
        self._ours: set[str] = set()

    def widened(self, name: str) -> Tensor:
        """The field, in float32 if it is half as wide."""
        x = self.now[name]
        if x.dtype in {torch.float16, torch.bfloat16}:
            self._dtypes[name] = x.dtype
            self.replace(name, x.to(torch.float32))
        return self.now[name]

    def replace(self, name: str, x: Tensor) -> None:
        """Put another tensor in the field's place."""
        old = self.now[name]
        if x is old:
            return
        self.now[name] = x
        if not torch.compiler.is_compiling():
            own = name in self._ours or not _share(x, old)
            (self._ours.add if own and x.is_contiguous() else self._ours.discard)(name)

    def writable(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The field itself if it was made here and keeps its shape, else memory for what follows it."""
        x = self.now[name]
        if name in self._ours and x.shape == shape:
            return x
        result = self._results.get(name)
        if result is not None and (result.shape, result.dtype) == (shape, x.dtype) and not _share(result, x):
            return result
        return self._memory.empty(shape, x.dtype)

    def put(self, name: str, rows: Tensor, changed: Tensor) -> None:
        """Replace some rows of a field."""
        x = self.now[name]
        changed = changed.to(x.dtype)
        if x.requires_grad or changed.requires_grad or (x.device.type != "cpu" and name not in self._ours):
            self.replace(name, x.index_copy(0, rows, changed))
            return
        if name not in self._ours:
            own = self.writable(name, tuple(x.shape))
            self.replace(name, own.copy_(x))
        self.now[name].index_copy_(0, rows, changed)

    def narrowed(self) -> dict[str, Tensor]:
        """All fields, each in the dtype in which it came."""
        for name, dtype in self._dtypes.items():
            self.now[name] = self.now[name].to(dtype)
        return self.now


def _share(x: Tensor, y: Tensor) -> bool:
    """Whether one may be a view of the other."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def make_stages(transforms: Sequence[Transform], roles: Mapping[str, Role]) -> list[Stage]:
    """Group neighbours that can be one sampling; say what each changes.

    Raises:
        UsageError: a transform for which there is no field.
    """
    stages: list[Stage] = []
    for place, transform in enumerate(transforms):
        changed = {name: role for name, role in roles.items() if role in transform.roles}
        if not changed:
            raise UsageError(
                f"{type(transform).__name__} changes fields with the role {' or '.join(transform.roles)}, "
                f"got roles={dict(roles)}; give a field that role or leave the transform out"
            )
        if stages and joint_sampling((*stages[-1].transforms, transform)) is not None:
            before = stages.pop()
            stages.append(Stage((*before.transforms, transform), (*before.places, place), changed))
        else:
            stages.append(Stage((transform,), (place,), changed))
    return [single for stage in stages for single in _worth_fusing(stage)]


def _worth_fusing(stage: Stage) -> list[Stage]:
    """The stage, or its transforms one by one if none of them needs sampling, as with two flips."""
    sampling = joint_sampling(stage.transforms)
    if sampling is None or sampling.interpolation is not None:
        return [stage]
    each = zip(stage.transforms, stage.places, strict=True)
    return [Stage((transform,), (place,), stage.roles) for transform, place in each]


def runs_of(stages: Sequence[Stage]) -> list[tuple[int, int]]:
    """First and last + 1 of stages that the compiled loop takes samples through together."""
    breaks = [number for number in range(1, len(stages)) if not stages[number].follows(stages[number - 1])]
    return list(itertools.pairwise([0, *breaks, len(stages)])) if stages else []


def is_none(rows: Tensor | None) -> bool:
    """Whether these are no rows at all; None stands for all."""
    return rows is not None and not rows.shape[0]


def run_rows(stage: Stage, fields: Fields, params: Sequence[Params], rows: Tensor | None) -> None:
    """Change the rows that were chosen, as the host knows them; None for all."""
    none = is_none(rows)
    extras = _prepared(stage, fields, params, widen=not none)
    if none:
        fields.now.update(extras)
        return
    few = None if rows is None or stage.always else rows
    chosen = params if few is None else [drawn.select(few) for drawn in params]
    for name, role in stage.roles.items():
        x = fields.now[name]
        if stage.writes and on_host(x):
            out = fields.writable(name, stage.transforms[0].written_shape(x))
            stage.transforms[0].write(out, x, params[0], role)
            fields.replace(name, out)
        elif few is None:
            fields.replace(name, _changed(stage, x, chosen, role).to(x.dtype))
        else:
            fields.put(name, few, _changed(stage, x, chosen, role, few))
    fields.now.update(extras)


def run_loop(stages: Sequence[Stage], fields: Fields, params: Sequence[Params]) -> None:
    """Take the samples through stages that follow each other, in one compiled loop."""
    extras: dict[str, Tensor] = {}
    roles: dict[str, Role] = {}
    for stage, drawn in zip(stages, params, strict=True):
        if stage.has or stage.roles.keys() - roles.keys():
            extras.update(_prepared(stage, fields, [drawn], widen=True))
        else:
            drawn.size = params[0].size
        roles |= stage.roles
    for name, role in roles.items():
        x = fields.now[name]
        operations: list[_operations.Operation] = []
        for stage, drawn in zip(stages, params, strict=True):
            if name in stage.roles:
                operations += stage.transforms[0].operations(x, drawn, role)
        out = fields.writable(name, tuple(x.shape))
        _operations.apply(out, x, operations, is_mask=role == "mask")
        fields.replace(name, out)
    fields.now.update(extras)


def can_loop(stages: Sequence[Stage], fields: Fields) -> bool:
    """Whether the compiled loop takes the fields that these stages change."""
    if not (stages[0].loops and _operations.are_compiled()):
        return False
    names = {name for stage in stages for name in stage.roles}
    return all(on_host(x := fields.now[name]) and _operations.takes(x) for name in names)


def run_static(stage: Stage, fields: Fields, params: Sequence[Params], chosen: Tensor) -> None:
    """Change all rows, and keep the change where chosen, bool [B, transforms of the stage]."""
    never = all(transform.p == 0 for transform in stage.transforms)
    extras = _prepared(stage, fields, params, widen=not never)
    for name, role in () if never else stage.roles.items():
        x = fields.now[name]
        changed = _changed(stage, x, params, role).to(x.dtype)
        if not stage.always:
            touched = chosen[:, 0] if chosen.shape[1] == 1 else chosen.any(1)
            changed = torch.where(touched.view(-1, *[1] * (x.ndim - 1)), changed, x)
        fields.replace(name, changed)
    fields.now.update(extras)


def check_fields(batch: Mapping[str, object], roles: Mapping[str, Role], num_samples: int) -> None:
    """Raise a UsageError for a field that is missing, or whose shape is not that of its role."""
    for name, role in roles.items():
        x = batch.get(name)
        if not isinstance(x, Tensor):
            raise UsageError(
                f"roles name the field {name!r}, so the batch must have it as a tensor, "
                f"got {'nothing' if x is None else type(x).__name__} beside {', '.join(map(repr, batch))}"
            )
        num_dims, layout = LAYOUTS.get(role, (x.ndim, ""))
        if x.ndim != num_dims:
            raise UsageError(
                f"a field with the role {role!r} must be {layout}, got {name!r} of shape {list(x.shape)}; "
                f"reshape it or give it another role"
            )
        if x.ndim == 0 or x.shape[0] != num_samples:
            raise UsageError(
                f"a batch must have one row a sample in every field, got {name!r} of shape {list(x.shape)} "
                f"for {num_samples} samples"
            )


def _prepared(stage: Stage, fields: Fields, params: Sequence[Params], *, widen: bool) -> dict[str, Tensor]:
    """Bring the stage's fields to the dtype that they will have; what else the batch gets."""
    for name, role in stage.roles.items():
        x = fields.widened(name) if widen and role in LAYOUTS else fields.now[name]
        for transform in stage.transforms:
            prepared = transform.prepare(x, role)
            if prepared is not x:
                fields.replace(name, prepared)
            x = prepared
        if role == "signal" and not x.is_floating_point():
            raise UsageError(
                f"a signal must be of a floating dtype to be augmented, got {name!r} of {x.dtype}; "
                f"convert it first"
            )
    now = {name: fields.now[name] for name in stage.roles}
    sizes = [tuple(now[name].shape[2:]) for name, role in stage.roles.items() if role in LAYOUTS]
    extras: dict[str, Tensor] = {}
    for transform, drawn in zip(stage.transforms, params, strict=True):
        drawn.size = sizes[0] if sizes else ()
        extras.update(transform.extras(now, drawn))
    if not torch.compiler.is_compiling():  # a field that is given as it was may be written over
        shared = [name for name, value in extras.items() if any(_share(value, x) for x in now.values())]
        extras.update({name: extras[name].clone() for name in shared})
    return extras


def _changed(
    stage: Stage, x: Tensor, params: Sequence[Params], role: Role, rows: Tensor | None = None
) -> Tensor:
    """The given rows of a field (None for all), changed."""
    if not x.shape[0]:
        return _empty(stage, x, params, role)
    here = x if rows is None else x.index_select(0, rows)
    transform = stage.transforms[0]
    if isinstance(transform, Mixing):
        partner = params[0].partner
        assert partner is not None
        return transform.mix(here, x.index_select(0, partner), params[0], role)
    if len(stage.transforms) > 1:
        geometric = [each for each in stage.transforms if isinstance(each, Geometric)]
        return change_together(geometric, here, params, role)
    return transform.change(here, params[0], role)


def _empty(stage: Stage, x: Tensor, params: Sequence[Params], role: Role) -> Tensor:
    """An empty batch changed: of the shape that a row would have had. Few kernels take no rows."""
    one = torch.zeros((1, *x.shape[1:]), dtype=x.dtype, device=x.device)
    return _changed(stage, one, [drawn.blank() for drawn in params], role)[:0]
