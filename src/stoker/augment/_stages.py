"""Running one stage of a pipeline: on the rows that were chosen, or on all of them.

A stage is one transform, or neighbours in geometry that share one sampling. Where the host knows
the chosen rows, only these are taken out, changed and put back. Else every row is changed, and each
takes the changed or the old value: more work, but shapes and operators that never vary, as a
compiler needs them. Both ways give the same bits.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.augment._draws import Params
from stoker.augment._geometry import Geometric, change_together, joint_sampling
from stoker.augment._transform import LAYOUTS, Mixing, Role, Transform
from stoker.errors import UsageError

# Elements of a field that are changed together on the CPU. For [16, 3, 512, 512] on one core this takes a
# blur of 9 taps from 52 to 10 ms a sample, colour from 22 to 9, a rotation from 20 to 11.
_PART = 1 << 20


class Stage(NamedTuple):
    """Transforms that run together, their places in the pipeline, and the fields they change."""

    transforms: tuple[Transform, ...]
    places: tuple[int, ...]
    roles: dict[str, Role]

    @property
    def always(self) -> bool:
        """Whether no sample is left out, or leaving out costs more than it saves."""
        return any(transform.p == 1 for transform in self.transforms) or (
            len(self.transforms) == 1 and self.transforms[0].every_row
        )


class Fields:
    """The fields of a batch on their way through the stages.

    Knows which tensors were made here: only these may be written to, and only while no gradient
    needs their old values.
    """

    def __init__(self, batch: Mapping[str, Tensor]) -> None:
        self.now: dict[str, Tensor] = dict(batch)
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
        old = self.now.get(name)
        if torch.compiler.is_compiling() or old is None:
            self._ours.discard(name)
        elif x is not old and x.untyped_storage().data_ptr() != old.untyped_storage().data_ptr():
            self._ours.add(name)
        elif not (name in self._ours and x.is_contiguous()):
            self._ours.discard(name)
        self.now[name] = x

    def writable(self, name: str, *, copy: bool) -> Tensor:
        """The field itself if it was made here, else memory like it, holding a copy if asked for."""
        x = self.now[name]
        if name in self._ours:
            return x
        return x.clone(memory_format=torch.contiguous_format) if copy else torch.empty(x.shape, dtype=x.dtype)

    def put(self, name: str, rows: Tensor, changed: Tensor) -> None:
        """Replace some rows of a field."""
        x = self.now[name]
        changed = changed.to(x.dtype)
        if name in self._ours and not (x.requires_grad or changed.requires_grad):
            x.index_copy_(0, rows, changed)
        else:
            self.replace(name, x.index_copy(0, rows, changed))

    def narrowed(self) -> dict[str, Tensor]:
        """All fields, each in the dtype in which it came."""
        for name, dtype in self._dtypes.items():
            self.now[name] = self.now[name].to(dtype)
        return self.now


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


def run_rows(stage: Stage, fields: Fields, params: Sequence[Params], rows: Tensor | None) -> None:
    """Change the rows that were chosen, as the host knows them; None for all."""
    none = rows is not None and not rows.shape[0]
    extras = _prepared(stage, fields, params, widen=not none)
    if none:
        fields.now.update(extras)
        return
    if rows is not None and not stage.always:
        params = [drawn.select(rows) for drawn in params]
    else:
        rows = None
    for name, role in stage.roles.items():
        x = fields.now[name]
        parts = _parts(stage, x, x.shape[0] if rows is None else rows.shape[0])
        if len(parts) > 1:
            _run_parts(stage, fields, name, role, params, rows, parts)
        elif rows is None:
            fields.replace(name, _changed(stage, x, params, role).to(x.dtype))
        else:
            fields.put(name, rows, _changed(stage, x, params, role, rows))
    fields.now.update(extras)


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
    return extras


def _parts(stage: Stage, x: Tensor, num_rows: int) -> list[slice]:
    """Rows to be changed together: all, or where samples are large few enough to stay in the caches.

    Samples do not depend on each other, so the bits are the same.
    """
    apart = x.device.type == "cpu" and not x.requires_grad and not isinstance(stage.transforms[0], Mixing)
    if not apart or x.numel() <= _PART:
        return [slice(0, num_rows)]
    step = max(torch.get_num_threads(), _PART // (x.numel() // x.shape[0]))  # kernels may divide samples
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _run_parts(
    stage: Stage,
    fields: Fields,
    name: str,
    role: Role,
    params: Sequence[Params],
    rows: Tensor | None,
    parts: Sequence[slice],
) -> None:
    """Change a field part by part, in its own memory where that may be written to.

    Fresh memory is what costs: its pages are zeroed one by one as they are first touched.
    """
    x = fields.now[name]
    out = fields.writable(name, copy=rows is not None)
    for part in parts:
        drawn = [each.part(part) for each in params]
        if rows is None:
            changed = _changed(stage, x[part], drawn, role)
            if out.shape[1:] != changed.shape[1:]:
                out = torch.empty((x.shape[0], *changed.shape[1:]), dtype=x.dtype)
            out[part] = changed
        else:
            out.index_copy_(0, rows[part], _changed(stage, x, drawn, role, rows[part]).to(x.dtype))
    fields.replace(name, out)


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
