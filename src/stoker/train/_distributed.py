"""Several processes: who am I, what do all agree on.

Numbers that only the host needs travel over a gloo group of its own, so that a GPU is never waited for.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.errors import UsageError


class Ranks:
    """This process among all that train one model together; alone, every call costs next to nothing."""

    def __init__(self) -> None:
        self.rank, self.world_size = 0, 1
        self._control: Any = None
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
            self._control = dist.new_group(backend="gloo")

    @property
    def is_first(self) -> bool:
        """Whether this one logs and writes."""
        return self.rank == 0

    def added(self, *numbers: int) -> list[int]:
        """Whole numbers added up over all ranks, which all get; each rank waits for the others."""
        if self._control is None:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(total, group=self._control)
        return [int(number) for number in total.tolist()]

    def added_floats(self, *numbers: float) -> list[float]:
        """The same for numbers with a fraction, in float64."""
        if self._control is None:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self._control)
        return [float(number) for number in total.tolist()]

    def smallest(self, number: int) -> int:
        """The least of all ranks' numbers."""
        if self._control is None:
            return number
        least = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=self._control)
        return int(least.item())

    def gathered(self, thing: Any) -> list[Any]:
        """The things of all ranks, by rank; tensors must be on the CPU."""
        if self._control is None:
            return [thing]
        things: list[Any] = [None] * self.world_size
        dist.all_gather_object(things, thing, group=self._control)
        return things

    def told(self, thing: Any) -> Any:
        """The first rank's thing."""
        if self._control is None:
            return thing
        things = [thing]
        dist.broadcast_object_list(things, src=0, group=self._control)
        return things[0]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Make each the mean over all ranks, in place, on its device: what DDP does with gradients."""
        for tensor in tensors:
            if self._control is not None:
                dist.all_reduce(tensor)
                tensor.div_(self.world_size)

    def take_firsts(self, tensors: Iterable[Tensor]) -> None:
        """Make each the first rank's, in place, on its device."""
        for tensor in tensors:
            if self._control is not None:
                dist.broadcast(tensor, src=0)

    def close(self) -> None:
        """Give up the group for numbers."""
        if self._control is not None and dist.is_initialized():
            dist.destroy_process_group(self._control)
        self._control = None


def is_first() -> bool:
    """Whether this process writes what is written once: rank 0, or alone.

    Before there is a group, rank 0 is the one that torchrun calls so.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def wait_for_all() -> None:
    """Go on when every rank has come here; alone, at once."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def started_by_torchrun() -> bool:
    """Whether this process is one of several that torchrun (or a launcher like it) started."""
    addressed = {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    return addressed and int(os.environ.get("WORLD_SIZE", "1")) > 1


def choose_device(name: str | torch.device) -> torch.device:
    """The device; "auto" is this process' own CUDA device (by LOCAL_RANK) if there is one, else the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device must be 'auto' or one that PyTorch knows, got {name!r}") from error
    if str(device) == "cuda":  # of several, this process' own
        if not torch.cuda.is_available():
            raise UsageError(f"there is no CUDA device here for device={str(name)!r}; pass 'auto' or 'cpu'")
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def start_process_group(device: torch.device) -> bool:
    """Join the others that torchrun started; False if there are none, or that is done already."""
    if not started_by_torchrun() or not dist.is_available() or dist.is_initialized():
        return False
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return True


@contextlib.contextmanager
def process_group(device: str | torch.device = "auto") -> Iterator[torch.device]:
    """Within it, loaders know their rank. Under torchrun it joins the others, alone it does nothing.

    with process_group() as device:
        loader = stoker.Loader(store, 64, device=device)
        Trainer(model, task, device=device).fit(loader, epochs=3)
    """
    chosen = choose_device(device)
    mine = start_process_group(chosen)
    try:
        yield chosen
    finally:
        if mine:
            dist.destroy_process_group()
