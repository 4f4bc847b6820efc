"""The pipeline: transforms in a row, applied to the fields of a batch by their roles."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stoker.augment._draws import Draws
from stoker.augment._keys import device_keys, host_keys
from stoker.augment._layout import Layout
from stoker.augment._memory import Memory
from stoker.augment._parts import are_divisible, few_threads, fits_caches, parts_of, run_parts
from stoker.augment._stages import (
    Fields,
    can_loop,
    check_fields,
    is_none,
    make_stages,
    run_loop,
    run_rows,
    run_static,
    runs_of,
)
from stoker.augment._transform import ROLES, Role, Transform
from stoker.errors import UsageError

Batch = dict[str, Any]


class Pipeline(nn.Module):
    """Transforms in a row, each with its own parameters for every sample.

    Every parameter is a function of (seed, epoch, number of the sample, place of the transform, view):
    the augmented sample does not depend on the batch it is in, on ranks, workers or a resumed run.
    Mixing transforms are the exception: they also depend on who else is in the batch.

    Draws are made on the host and copied to the device without waiting, so that only the rows which
    a transform was chosen for are computed. If `index` is on another device than the CPU, or inside
    ``torch.compile``, the same numbers are drawn there and every row is computed. Nothing is ever
    read back from the device.

        aug = Pipeline(TimeShift(0.1, p=0.8), GaussianNoise((20, 40)), roles={"x": "signal"}, seed=0)
        batch = aug(batch, index=batch["index"], epoch=3)

    In ``eval()`` mode it changes nothing.

    Args:
        transforms: applied in this order; neighbours in geometry share one sampling.
        roles: of the fields: "signal" [B, C, T], "image" [B, C, H, W], "volume" [B, C, D, H, W],
            "mask" or "label". Fields without a role pass through.
        seed: of all draws.
        static: always compute every row, with shapes that never vary.

    Raises:
        UsageError: an unknown role, or a transform that no field has the role for.
    """

    def __init__(
        self, *transforms: Transform, roles: Mapping[str, Role], seed: int = 0, static: bool = False
    ) -> None:
        super().__init__()
        _check(transforms, roles)
        self.transforms = nn.ModuleList(transforms)
        self.roles = dict(roles)
        self.seed = seed
        self.static = static
        self._stages = make_stages(transforms, roles)
        self._runs = runs_of(self._stages)
        self._layout = Layout(transforms, [stage.places for stage in self._stages])
        self._memory = Memory()
        self._num_seen = 0

    def forward(self, batch: Mapping[str, Any], index: Any = None, epoch: int | Tensor = 0) -> Batch:
        """Give the batch augmented; the one that came is not written to.

        Args:
            batch: fields by name; those with a role must be tensors of one row a sample.
            index: numbers of the samples, [B]: an array, a sequence or a tensor. By default the
                batch's own field "index"; without that, samples are numbered as they come, which
                repeats only if the whole run does.
            epoch: gives the same samples other parameters. Inside ``torch.compile`` pass a tensor of
                no dimensions, or each new number may be compiled anew.
        """
        if not self.training:
            return dict(batch)
        return self._view(batch, index, epoch, 0)

    def views(
        self, batch: Mapping[str, Any], num_views: int = 2, *, index: Any = None, epoch: int | Tensor = 0
    ) -> list[Batch]:
        """Augment the batch several times independently; the first view is that of a plain call."""
        if num_views < 1:
            raise UsageError(f"num_views must be at least 1, got {num_views}")
        if not self.training:
            return [dict(batch) for _ in range(num_views)]
        if index is None:
            index = self._numbers(batch)
        if self._are_small(batch, num_views) and not (_elsewhere(index) or _elsewhere(epoch)):
            return self._views_together(batch, num_views, _whole_numbers(index), int(epoch))
        return [self._view(batch, index, epoch, view) for view in range(num_views)]

    def draw(
        self,
        index: Any,
        epoch: int | Tensor = 0,
        *,
        view: int = 0,
        device: torch.device | str | None = None,
    ) -> Draws:
        """Draw the parameters of some samples, for `replay`.

        Args:
            index: numbers of the samples, [B].
            epoch: as for the call.
            view: which of several independent ones.
            device: where the batch is; by default that of `index`.
        """
        if _elsewhere(index) or _elsewhere(epoch):
            where = index.device if device is None else device
            numbers = torch.as_tensor(index).to(where, non_blocking=True)
            return self._layout.device_draws(device_keys((self.seed, epoch, view), numbers))
        draws = self._layout.host_draws(host_keys((self.seed, int(epoch), view), _whole_numbers(index)))
        return draws if device is None else draws.to(torch.device(device))

    def replay(self, batch: Mapping[str, Any], draws: Draws) -> Batch:
        """Apply what was drawn, in any mode; this is the part to compile.

        step = torch.compile(aug.replay, fullgraph=True)
        batch = step(batch, aug.draw(index, epoch))
        """
        check_fields(batch, self.roles, draws.values.shape[0])
        if self.static or draws.rows is None or torch.compiler.is_compiling():
            return self._run(batch, draws, {}, static=True)
        parts = parts_of(batch, self._stages)
        if len(parts) == 1:
            with few_threads([batch[name] for name in self.roles]):
                return self._run(batch, draws, {}, static=False)

        def run(part: slice, here: Mapping[str, Any], results: Mapping[str, Tensor]) -> Batch:
            return self._run(here, draws.part(part), results, static=False)

        return run_parts(parts, batch, self._stages, self._memory, run)

    def explain(self, draws: Draws) -> list[dict[str, Tensor]]:
        """The parameters by name for each transform, and "chosen": which samples get it.

        A sample that was not chosen shows neutral parameters, where the transform has such.
        """
        explained = []
        for place, transform in enumerate(self._each()):
            params = self._layout.params(draws, place)
            named = {name: params[name] for name in transform.draws}
            explained.append({"chosen": draws.chosen[:, place], **named})
        return explained

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | str | PathLike[str]) -> "Pipeline":
        """Make a pipeline from a mapping, or from a YAML or JSON file that holds one.

            roles: {x: signal}
            seed: 0
            transforms:
              - TimeShift: {shift: 0.1, p: 0.8}
              - signal.GaussianNoise: {snr_db: [20, 40]}  # the family, where two have such a name

        Raises:
            ConfigError: names what is unknown or wrong, and the nearest that is known.
        """
        from stoker.augment._config import read_config

        settings, transforms = read_config(config)
        return cls(*transforms, roles=settings.roles, seed=settings.seed, static=settings.static)

    def to_config(self) -> dict[str, Any]:
        """The pipeline as plain data, which makes an equal one."""
        from stoker.augment._config import write_config

        return write_config(self._each(), roles=self.roles, seed=self.seed, static=self.static)

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        static = ", static=True" if self.static else ""
        return f"roles={self.roles}, seed={self.seed}{static}"

    def __repr__(self) -> str:
        lines = [f"  {transform!r},\n" for transform in self._each()]
        return f"Pipeline(\n{''.join(lines)}  {self.extra_repr()},\n)"

    def _view(self, batch: Mapping[str, Any], index: Any, epoch: int | Tensor, view: int) -> Batch:
        if index is None:
            index = self._numbers(batch)
        device = next(
            (batch[name].device for name in self.roles if isinstance(batch.get(name), Tensor)), None
        )
        return self.replay(batch, self.draw(index, epoch, view=view, device=device))

    def _are_small(self, batch: Mapping[str, Any], num_views: int) -> bool:
        """Whether calls outweigh work, so that all views had better be one batch."""
        fields = [x for name in self.roles if isinstance(x := batch.get(name), Tensor)]
        return are_divisible(fields, self._stages) and fits_caches(fields, num_views)

    def _views_together(
        self, batch: Mapping[str, Any], num_views: int, numbers: NDArray[np.int64], epoch: int
    ) -> list[Batch]:
        check_fields(batch, self.roles, len(numbers))
        keys = [host_keys((self.seed, epoch, view), numbers) for view in range(num_views)]
        with few_threads([batch[name] for name in self.roles]):
            together = {name: torch.cat([batch[name]] * num_views) for name in self.roles}
            changed = self.replay(together, self._layout.host_draws(np.concatenate(keys)))
        parts = {name: _divided(x, num_views) for name, x in changed.items()}
        return [{**batch, **{name: x[view] for name, x in parts.items()}} for view in range(num_views)]

    def _run(
        self, batch: Mapping[str, Any], draws: Draws, results: Mapping[str, Tensor], *, static: bool
    ) -> Batch:
        """All stages, one after the other."""
        fields = Fields(batch, results, self._memory)
        for first, last in self._runs:
            stages = self._stages[first:last]
            params = [[self._layout.params(draws, place) for place in stage.places] for stage in stages]
            if static:
                for stage, drawn in zip(stages, params, strict=True):
                    chosen = draws.chosen[:, stage.places[0] : stage.places[-1] + 1]
                    run_static(stage, fields, drawn, chosen)
                continue
            assert draws.rows is not None
            rows = draws.rows[first:last]
            if can_loop(stages, fields) and not all(map(is_none, rows)):
                run_loop(stages, fields, [drawn[0] for drawn in params])
                continue
            for stage, drawn, here in zip(stages, params, rows, strict=True):
                run_rows(stage, fields, drawn, here)
        return fields.narrowed()

    def _numbers(self, batch: Mapping[str, Any]) -> Any:
        """Numbers for samples that came without."""
        if "index" in batch and "index" not in self.roles:
            return batch["index"]
        if torch.compiler.is_compiling():
            raise UsageError("a compiled pipeline must be told which samples it gets; pass index=")
        sizes = [len(batch[name]) for name in self.roles if isinstance(batch.get(name), Tensor)]
        first, self._num_seen = self._num_seen, self._num_seen + (sizes[0] if sizes else 0)
        return np.arange(first, self._num_seen)

    def _each(self) -> list[Transform]:
        return [transform for transform in self.transforms if isinstance(transform, Transform)]


def _check(transforms: tuple[Transform, ...], roles: Mapping[str, Role]) -> None:
    for transform in transforms:
        if not isinstance(transform, Transform):
            raise UsageError(
                f"a pipeline is made of transforms, got {type(transform).__name__}; "
                f"subclass Transform to add your own"
            )
    for name, role in roles.items():
        if role not in ROLES:
            raise UsageError(f"a role must be one of {', '.join(ROLES)}, got {role!r} for the field {name!r}")


def _divided(x: Tensor, num_parts: int) -> list[Tensor]:
    """Equal parts of x on the host, as tensors that know nothing of each other; autograd minds views."""
    if x.dtype is torch.bfloat16:  # which numpy does not have
        return [part.clone() for part in x.chunk(num_parts)]
    rows, size = x.numpy(), len(x) // num_parts
    return [torch.from_numpy(rows[part * size : (part + 1) * size]) for part in range(num_parts)]


def _elsewhere(number: Any) -> bool:
    """Whether the host cannot look at it without waiting, or a compiler at all."""
    return torch.compiler.is_compiling() or (isinstance(number, Tensor) and number.device.type != "cpu")


def _whole_numbers(index: Any) -> NDArray[np.int64]:
    numbers = index.numpy() if isinstance(index, Tensor) else np.asarray(index)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise UsageError(
            f"index must be whole numbers, one a sample, got {numbers.dtype} of shape {list(numbers.shape)}"
        )
    return numbers.astype(np.int64, copy=False)
