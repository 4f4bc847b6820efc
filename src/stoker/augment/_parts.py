"""Running a pipeline on the CPU: large batches a few samples at a time, small ones in one thread.

What one stage wrote the next then finds in the cache, and temporary memory is small enough to be used
again and again. Samples do not depend on each other, so the bits are the same.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stoker.augment._memory import Memory
from stoker.augment._stages import Stage
from stoker.augment._transform import Mixing

# Elements of a field that go through the pipeline together. Measured for images 512 x 512, volumes 64³ and
# signals [256, 16, 2000]: 2**25 is slower for most, as caches overflow, and 2**19, as calls outweigh work.
_PART = 1 << 21

# A pass over so many elements takes some 0.1 ms in one thread. An operator that is divided wakes another
# thread and waits for it: for milliseconds, where another process has that core. Measured for two views of
# [64, 1, 4000] on two cores: 6.9 ms either way if both are free, else 6.4 ms in one thread and 17 ms in two.
_SMALL = 1 << 20

torch.get_num_threads()  # so that the importing thread, mostly the one that trains, has its own number by now

Run = Callable[[slice, Mapping[str, Any], Mapping[str, Tensor]], dict[str, Any]]


def parts_of(batch: Mapping[str, Any], stages: Sequence[Stage]) -> list[slice]:
    """Rows to be changed together: few enough to stay in the caches, or all where that cannot help."""
    fields: list[Tensor] = [batch[name] for name in _changed_names(stages)]
    num_samples = len(fields[0]) if fields else 0
    most = max((x.numel() for x in fields), default=0)
    if fits_caches(fields) or _writes_once(batch, stages) or not are_divisible(fields, stages):
        return [slice(0, num_samples)]
    step = max(torch.get_num_threads(), _PART * num_samples // most)  # kernels may divide samples
    return [slice(start, min(start + step, num_samples)) for start in range(0, num_samples, step)]


def run_parts(
    parts: Sequence[slice], batch: Mapping[str, Any], stages: Sequence[Stage], memory: Memory, run: Run
) -> dict[str, Any]:
    """The batch, changed part by part.

    Args:
        parts: of `parts_of`.
        batch: fields by name.
        stages: of the pipeline.
        memory: for the results.
        run: changes the rows of a part; gets memory for the result too, once its shape is known.
    """
    names = _changed_names(stages)
    whole: dict[str, Tensor] = {}
    extras: dict[str, list[Tensor]] = {}
    for part in parts:
        here = {**batch, **{name: batch[name][part] for name in names}}
        results = {name: x[part] for name, x in whole.items()}
        for name, x in run(part, here, results).items():
            if name not in names:
                if x is not batch.get(name):
                    extras.setdefault(name, []).append(x)
            elif x is not here[name] or name in whole:
                if name not in whole:
                    whole[name] = memory.empty((len(batch[name]), *x.shape[1:]), x.dtype)
                    if part.start:  # up to here nothing was changed
                        whole[name][: part.start] = batch[name][: part.start]
                if x is not results.get(name):
                    whole[name][part] = x
    return {**batch, **whole, **{name: torch.cat(pieces) for name, pieces in extras.items()}}


@contextlib.contextmanager
def few_threads(fields: Sequence[Tensor]) -> Iterator[None]:
    """Have torch's operators, as called from this thread, run in it alone if the fields are small."""
    num_threads = torch.get_num_threads()
    is_small = all(x.device.type == "cpu" and x.numel() <= _SMALL for x in fields)
    if num_threads == 1 or not is_small:
        yield
        return
    torch.set_num_threads(1)  # of this thread, and of any that first uses torch meanwhile
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _changed_names(stages: Sequence[Stage]) -> set[str]:
    return {name for stage in stages for name in stage.roles}


def fits_caches(fields: Sequence[Tensor], times: int = 1) -> bool:
    """Whether so many of these fields stay in the caches from one stage to the next."""
    return times * max((x.numel() for x in fields), default=0) <= _PART


def are_divisible(fields: Sequence[Tensor], stages: Sequence[Stage]) -> bool:
    """Whether samples may be changed in any company: on the host, no gradients now or later, no mixing."""
    mixes = any(isinstance(stage.transforms[0], Mixing) for stage in stages)
    learns = torch.is_grad_enabled() and any(
        parameter.requires_grad
        for stage in stages
        for transform in stage.transforms
        for parameter in transform.parameters()
    )
    return not (mixes or learns) and all(x.device.type == "cpu" and not x.requires_grad for x in fields)


def _writes_once(batch: Mapping[str, Any], stages: Sequence[Stage]) -> bool:
    """Whether results are written straight from the batch: then there is nothing to keep in the cache."""
    fields = stages[0].roles.items() if len(stages) == 1 and stages[0].writes else ()
    return bool(fields) and all(role == "mask" or batch[name].is_floating_point() for name, role in fields)
