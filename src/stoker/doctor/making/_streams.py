"""Whether a stream (an iterable data set) divides itself among workers, or gives each of them everything.

It is tried out, as what a stream asks for does not tell: it is begun in forked processes, as it would be in
the loop and as each of two workers would begin it, and what these give is compared. Whatever it does there
(change itself, wait for ever, exit) it does to a copy, and ends with it.
"""

import math
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from torch.utils.data import ChainDataset
from torch.utils.data._utils import worker as torch_worker

from stoker.doctor._record import Division
from stoker.doctor.making._purity import digest
from stoker.doctor.making._randomness import set_seed

_MOST = 8  # workers that are tried
_ROLES: tuple[tuple[int, int], ...] = ((0, 0), (0, 2), (1, 2), (_MOST - 1, _MOST))  # worker, of so many
_MAX_SAMPLES = 10_000
_LEAST = 3  # samples of each worker, for the beginning to tell anything
_VARIED = 8  # different samples, or two orders of the same few would look like two parts
_BUDGET_S = 3.0
_GRACE_S = 1.0  # for what they found to arrive
_PATIENCE_S = 10.0  # for the first sample of the loop's own pass


@dataclass(frozen=True)
class Part:
    """What a stream gave in one role."""

    digests: list[bytes | None]  # of the samples; None: cannot be compared
    has_ended: bool
    num_again: int | None  # samples of a second pass, where that was through in time
    first_again: bytes | None  # the first one of that pass

    @property
    def has_hung(self) -> bool:
        """Whether it gave nothing for as long as it was waited for."""
        return not self.digests and not self.has_ended


def look_at_stream(dataloader: Any) -> tuple[bool, Division | None]:
    """Whether it gives anything beside the loop's own pass, and how it divides itself; None: not known.

    Takes some three seconds at most, unless the stream itself is slow to begin.
    """
    whole, first, second, last = _try_out(dataloader)
    if whole is None or first is None or second is None:  # what fails in a forked process may do here
        return whole is None or not whole.has_hung, None
    found = division(whole, first, second)
    if found is not None and not found.is_whole and isinstance(dataloader.dataset, ChainDataset):
        found = None  # what begins divided may go on otherwise
    if found is not None and found.num_workers > 1 and last is not None and last.digests:
        found = Division(_MOST, found.num_samples, is_whole=found.is_whole)
    return not whole.has_hung, found


def division(whole: Part, first: Part, second: Part) -> Division | None:
    """From what the loop and each of two workers would get."""
    parts = (whole, first, second)
    if all(part.has_ended for part in parts):
        return _by_counts(*parts)
    num = min(len(first.digests), len(second.digests), len(whole.digests) // 2)
    if num < _LEAST or any(part.first_again != part.digests[0] for part in parts):
        return None
    beginning, one, other = whole.digests[: 2 * num], first.digests[:num], second.digests[:num]
    if None in [*beginning, *one, *other]:
        return None
    if one == other == beginning[:num]:
        return Division(1, num, is_whole=False)
    is_varied = len({*beginning}) >= min(2 * num, _VARIED)
    is_divided = is_varied and Counter(beginning) == Counter([*one, *other])
    return Division(2, 2 * num, is_whole=False) if is_divided else None


def _by_counts(whole: Part, first: Part, second: Part) -> Division | None:
    total, counts = len(whole.digests), [len(first.digests), len(second.digests)]
    if not total or any(part.num_again != len(part.digests) for part in (whole, first, second)):
        return None  # a second pass is another one: workers that stay would lose samples
    if counts == [total, total]:
        return Division(1, total, is_whole=True)
    return Division(2, total, is_whole=True) if sum(counts) == total and 0 not in counts else None


def _try_out(dataloader: Any) -> list[Part | None]:
    context = get_context("fork")
    running: list[tuple[Any, Connection]] = []
    found: list[Part | None] = []
    try:
        for worker, num_workers in _ROLES:
            ours, theirs = context.Pipe(duplex=False)
            arguments = (dataloader, worker, num_workers, theirs)
            process = context.Process(target=_give, args=arguments, daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        begun = time.monotonic()
        for _, connection in running:
            patience = _GRACE_S if found else _PATIENCE_S
            found.append(_received(connection, begun + _BUDGET_S + patience))
    finally:
        for process, connection in running:
            process.kill()
            process.join()
            connection.close()
    return found


def _received(connection: Connection, until: float) -> Part | None:
    """What it found; nothing at all if it hangs, None if it failed."""
    try:
        if not connection.poll(max(0.0, until - time.monotonic())):
            return Part([], has_ended=False, num_again=None, first_again=None)
        return cast("Part", connection.recv())
    except (EOFError, OSError):  # it ended without a word
        return None


def _give(dataloader: Any, worker: int, num_workers: int, out: Connection) -> None:
    """In a process of its own: be that worker, or the loop, for as long as there is time."""
    import torch

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(_BUDGET_S + _PATIENCE_S) + 1)  # should nobody be left to end it
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    for standard in (1, 2):  # what it prints as a worker that there is not is nobody's to read
        os.dup2(nowhere.fileno(), standard)
    sys.stdout = sys.stderr = nowhere
    torch.set_num_threads(1)
    until = time.monotonic() + _BUDGET_S
    dataset = dataloader.dataset
    set_seed(worker)
    if num_workers:
        info: Any = torch_worker.WorkerInfo
        torch_worker._worker_info = info(id=worker, num_workers=num_workers, seed=worker, dataset=dataset)  # noqa: SLF001
        if dataloader.worker_init_fn is not None:
            dataloader.worker_init_fn(worker)
    digests, has_ended = _pass(dataset, until=(time.monotonic() + until) / 2, most=_MAX_SAMPLES)
    again, ends_again = _pass(dataset, until=until, most=_MAX_SAMPLES if has_ended else 1)
    out.send(Part(digests, has_ended, len(again) if ends_again else None, again[0] if again else None))
    os._exit(0)  # without the clean-up of a run that is not its own


def _pass(dataset: Any, *, until: float, most: int) -> tuple[list[bytes | None], bool]:
    """Its samples' digests, until it ends (which is told), time is up or there are enough; one at least."""
    found: list[bytes | None] = []
    for sample in dataset:
        found.append(digest(sample))
        if len(found) >= most or time.monotonic() > until:
            return found, False
    return found, True
