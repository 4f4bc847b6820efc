"""Running a pipeline on the CPU: large batches a few samples at a time, small ones in one thread.

What one stage wrote the next then finds in the cache, and temporary memory is small enough to be used
again and again. Samples do not depend on each other, so the bits are the same.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stoker.augment import _operations
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
    if fits_caches(fields) or _writes_once(batch, stages) or not are_divisible(fields, stages):
        return [slice(0, num_samples)]
    num_threads = torch.get_num_threads()
    most = max(x.numel() for x in fields)
    if _go_in_threads(stages):
        num_parts = -(-most // _PART // num_threads) * num_threads  # so that none of them idles
    else:
        num_parts = -(-num_samples // max(num_threads, _PART * num_samples // most))  # kernels divide samples
    num_parts = max(1, min(num_samples, num_parts))
    bounds = [num_samples * number // num_parts for number in range(num_parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def run_parts(
    parts: Sequence[slice], batch: Mapping[str, Any], stages: Sequence[Stage], memory: Memory, run: Run
) -> dict[str, Any]:
    """The batch, changed part by part.

    Args:
        parts: of `parts_of`.
        batch: fields by name.
        stages: of the pipeline.
        memory: for the results.
        run: changes the rows of a part; gets memory for the result too, as far as its shape is known.
    """
    names = _changed_names(stages)
    kept = [name for name in names if _is_kept(stages, name, batch[name])]
    whole = {name: memory.empty(tuple(batch[name].shape), batch[name].dtype) for name in kept}
    unchanged: list[tuple[str, slice]] = []
    making = threading.Lock()

    def change(part: slice) -> dict[str, Any]:
        here = {**batch, **{name: batch[name][part] for name in names}}
        results = {name: x[part] for name, x in list(whole.items())}
        changed = run(part, here, results)
        for name in names:
            x = changed.pop(name)
            if x is here[name]:
                unchanged.append((name, part))
                continue
            with making:
                expected = whole.get(name)
                if expected is None or (expected.dtype, expected.shape[1:]) != (x.dtype, x.shape[1:]):
                    whole[name] = memory.empty((len(batch[name]), *x.shape[1:]), x.dtype)
            if x is not results.get(name):
                whole[name][part] = x
        return {name: x for name, x in changed.items() if x is not batch.get(name)}

    extras = _in_threads(change, parts) if _go_in_threads(stages) else [change(part) for part in parts]
    for name in names:
        same = [part for each, part in unchanged if each == name]
        if len(same) == len(parts):
            whole[name] = batch[name]
            continue
        for part in same:
            whole[name][part] = batch[name][part]
    return {**batch, **whole, **{name: torch.cat([each[name] for each in extras]) for name in extras[0]}}


def _go_in_threads(stages: Sequence[Stage]) -> bool:
    """Whether parts had better be changed in several threads at once.

    They are where most stages are operations of the compiled loop, which runs in one thread. Operators divide
    themselves, and what they need on the way would be fresh memory in every thread: measured for images and
    volumes, 1.5 to 3 times as slow. A transform of a user's own may have a state: only one thread calls it.
    """
    kinds = {type(transform) for stage in stages for transform in stage.transforms}
    ours = __name__.partition(".")[0]
    return (
        torch.get_num_threads() > 1
        and _operations.are_compiled()
        and 2 * sum(stage.loops for stage in stages) > len(stages)
        and all(kind.__module__.partition(".")[0] == ours for kind in kinds)
        and not torch.is_autocast_enabled("cpu")  # which is the calling thread's alone
    )


def _in_threads(change: Callable[[slice], dict[str, Any]], parts: Sequence[slice]) -> list[dict[str, Any]]:
    """Change all parts, in as many threads as an operator would be divided into; each has its own alone.

    Not a pool of the library's: that takes no work once the main thread has ended, though others still train.
    """
    num_threads = torch.get_num_threads()
    is_inference, has_gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    waiting = iter(enumerate(parts))  # taken from by all threads: the interpreter lets one at a time
    changed: dict[int, dict[str, Any]] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        torch.set_num_threads(1)
        with torch.inference_mode(is_inference), torch.set_grad_enabled(has_gradients):
            for number, part in waiting:
                try:
                    changed[number] = change(part)
                except BaseException as error:  # noqa: BLE001 - raised by the calling thread
                    errors[number] = error

    threads = [threading.Thread(target=work, name="stoker-augment") for _ in parts[:num_threads]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(num_threads)  # a thread that first uses torch takes what was set last, by anybody
    if errors:
        raise errors[min(errors)]
    return [changed[number] for number in range(len(parts))]


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


def _is_kept(stages: Sequence[Stage], name: str, x: Tensor) -> bool:
    """Whether the field most likely comes out with its shape and dtype."""
    here = [stage for stage in stages if name in stage.roles]
    has_dtype = x.is_floating_point() or here[0].roles[name] == "mask"
    return has_dtype and all(transform.keeps_shape for stage in here for transform in stage.transforms)


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
