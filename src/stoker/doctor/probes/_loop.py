"""Probes on DataLoaders: when they are made, iterated, and asked for the next batch.

The iterators keep their types; only `__next__` of their common base class is replaced. Whether a batch
lay ready is read from the iterator's own books before it is asked: `_rcvd_idx` is the number of the
batch that is due, `_task_info` holds those that have arrived early.
"""

import inspect
import select
import sys
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_dataloader

from stoker.doctor.mending._overrides import Overrides
from stoker.doctor.probes._loaders import SeenLoader, SeenLoaders
from stoker.doctor.probes._made_at import bound_name, place_of, user_frame
from stoker.doctor.probes._replay import KeptBatches, look_at
from stoker.doctor.probes._tape import Swaps, Tape

_Iterator: Any = torch_dataloader._BaseDataLoaderIter  # noqa: SLF001 - the one base of all its iterators
_MAP = torch_dataloader._DatasetKind.Map  # noqa: SLF001
_OTHERS = (("stoker.loader", "Batches"),)  # iterators over batches that are not torch's: module, class
_OUR_REFERENCES = 2  # ours, and that of whoever counts them


class Director(Protocol):
    """Who decides what phase the run is in."""

    holds_loaders: bool  # the last one trained on is needed after the run
    is_keeping: bool  # batches for the replay
    is_replaying: bool
    is_stopping: bool

    def boundary(self, now: int, cpu: int) -> tuple[int, int]:
        """A step is over, at this time and processor time. Gives those at which the next one begins."""

    def stop(self) -> None:
        """Raise what ends the script."""


class Preparing(Protocol):
    """Who watches the processes that make batches."""

    def prepare(self, dataloader: Any, loader_number: int, epoch: int) -> None: ...


class Epoch:
    """One pass over a loader."""

    __slots__ = ("kept", "loader", "num_given", "num_to_give", "number", "seen")

    def __init__(self, seen: SeenLoader, kept: KeptBatches, num_to_give: int | None) -> None:
        self.seen = seen
        loader = seen.reference() if seen.is_torch else None
        # `for x in DataLoader(...)` keeps the iterator only; a persistent one is owned by its loader
        self.loader = None if loader is None or loader.persistent_workers else loader
        self.kept = kept
        self.number = seen.num_epochs
        self.num_given = 0
        self.num_to_give = num_to_give  # None where it has no known length


class LoopProbe:
    """Sees the loop from the side of its data."""

    def __init__(
        self, tape: Tape, *, director: Director, board: Preparing, settings: Overrides, user_root: str
    ) -> None:
        self.tape = tape
        self.loaders = SeenLoaders()
        self.training: DataLoader[Any] | None = None  # the last one that was trained on
        self.kept: dict[int, KeptBatches] = {}
        self.fresh: list[SeenLoader] = []  # asked for a batch since the last backward pass
        self.num_batches = 0
        self.in_other_thread = False  # some batches are taken by another thread than the loop's
        self.lacked_batches = False  # a replay had nothing to give
        self._director = director
        self._board = board
        self._settings = settings
        self._user_root = user_root
        self._held: dict[int, Any] = {}  # iterators of trained loaders, kept through a replay
        self._iterators: WeakSet[Any] = WeakSet()

    def install(self, swaps: Swaps) -> None:
        """Replace `DataLoader.__init__`, `__iter__` and the iterators' `__next__` until `swaps` closes."""
        swaps.swap(DataLoader, "__init__", self._init(DataLoader.__init__))
        swaps.swap(DataLoader, "__iter__", self._iter(DataLoader.__iter__))
        swaps.swap(_Iterator, "__next__", self._next(_Iterator.__next__))
        swaps.callback(self.release)

    def install_others(self, swaps: Swaps) -> None:
        """Watch the iterators of other libraries too, of those that the script has imported by now."""
        for module, name in _OTHERS:
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None:
                swaps.swap(kind, "__next__", self._next(_as_a_dataloaders(kind.__next__)))

    def release(self) -> None:
        """Let go of the user's loaders, iterators and batches."""
        self.training = None
        self._held.clear()
        self.kept.clear()

    def end_workers(self) -> None:
        """End the workers of a script that is over.

        Its variables and functions form a cycle. When that is collected, the queues go first and with them
        the only way to tell workers to end: torch then waits five seconds for each.
        """
        for iterator in list(self._iterators):
            getattr(iterator, "_shutdown_workers", _nothing)()

    def saw_backward(self) -> None:
        """The batches since the last backward pass were trained on."""
        for seen in self.fresh:
            seen.trains = True
        if self._director.holds_loaders:
            training = self.fresh[-1].reference()
            self.training = training if isinstance(training, DataLoader) else self.training
        self.tape.rest = "other"
        self.fresh.clear()

    def begin_replay(self) -> set[int]:
        """Decide on what was kept; gives the memory that it lies in."""
        for kept in self.kept.values():
            kept.settle(is_last=True)
        return set().union(*(kept.pointers() for kept in self.kept.values()))

    def can_replay(self) -> bool:
        """True where every loader that is trained on has batches to give again."""
        trained = [seen for seen in self.loaders.all if seen.trains and seen.reference() is not None]
        return bool(trained) and all(self.kept.get(seen.number) for seen in trained)

    def worker_pids(self) -> list[int]:
        """Processes of the loaders that are replayed."""
        return [
            worker.pid for iterator in self._held.values() for worker in getattr(iterator, "_workers", ())
        ]

    def is_fed(self) -> bool:
        """True once a loader is known to be trained on in the loop's own thread."""
        # asked in every step, and a list is made more quickly than a generator
        return not self.in_other_thread and True in [seen.trains for seen in self.loaders.all]

    def _init(self, original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:  # noqa: N807
            maker = sys._getframe(1)  # noqa: SLF001 - the interpreter's own way to ask
            while maker.f_back is not None and maker.f_locals.get("self") is loader:
                maker = maker.f_back  # a subclass's own __init__
            frame = user_frame(maker, user_root=self._user_root)
            place = place_of(frame) if frame is not None else None
            name = bound_name(frame, user_root=self._user_root)
            if self._settings.loaders and place is not None:
                bound = dict(signature.bind(loader, *args, **kwargs).arguments)
                del bound["self"]
                original(loader, **self._settings.apply(signature, bound, place, name))
            else:
                original(loader, *args, **kwargs)
            source = None if frame is maker else self.loaders.of_dataset(loader.dataset)
            if source is not None:
                self.loaders.inherit(loader, source)
                return
            if self.training is not None and sys.getrefcount(self.training) == _OUR_REFERENCES:
                self.training = None  # only we hold it: to the script it is gone
            self.loaders.see(loader, place, name, is_over=self._held)

        return __init__

    def _iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        tape, director = self.tape, self._director

        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: N807
            if director.is_stopping and get_ident() == tape.thread:
                director.stop()
            if not tape.is_open:
                return original(loader)
            seen = self.loaders.get(loader)
            kept = self.kept.setdefault(seen.number, KeptBatches())
            begin, cpu = tape.now(), time.process_time_ns()
            tape.stage = None
            if director.is_replaying and seen.number in self._held:
                iterator = self._held[seen.number]  # its workers are idle, their buffers full
            else:
                self._board.prepare(loader, seen.number, seen.num_epochs)
                iterator = original(loader)
                seen.refresh()
            has_length = iterator._dataset_kind == _MAP  # noqa: SLF001
            epoch = Epoch(seen, kept, seen.settings["num_batches"] if has_length else None)
            iterator._stoker_epoch = epoch  # noqa: SLF001
            self._iterators.add(iterator)
            if get_ident() == tape.thread:
                tape.spans.append(
                    ("epoch", begin, tape.now(), seen.number, epoch.number, -1, False, False, True, None, cpu)
                )
            seen.num_epochs += 1
            tape.stage = tape.rest
            return iterator

        return __iter__

    def _adopt(self, iterator: Any) -> Epoch:
        """An iterator whose beginning nobody saw: it began before us, or is not torch's."""
        seen = self.loaders.see_iterator(iterator)
        epoch = Epoch(seen, self.kept.setdefault(seen.number, KeptBatches()), None)
        epoch.seen.num_epochs += 1
        iterator._stoker_epoch = epoch  # noqa: SLF001
        return epoch

    def _next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        tape, director, clock = self.tape, self._director, self.tape.clock
        cpu_clock, has_grad = time.process_time_ns, torch.is_grad_enabled  # used in every step

        def __next__(iterator: Any) -> Any:  # noqa: N807
            if not tape.is_open:
                return original(iterator)
            epoch: Epoch = iterator.__dict__.get("_stoker_epoch") or self._adopt(iterator)
            if get_ident() != tape.thread:
                return self._next_elsewhere(original, iterator, epoch)
            if director.is_stopping:
                director.stop()
            begin, cpu = tape.now(), cpu_clock()
            if tape.stepped:
                begin, cpu = director.boundary(begin, cpu)
            tape.optimizer_depth = 0  # one that raised has left it up
            grad, seen = has_grad(), epoch.seen
            tape.stage = "wait" if seen.trains else None
            arrival = None
            try:
                if director.is_replaying and seen.trains:
                    self._held.setdefault(seen.number, iterator)
                    asked = clock()
                    batch = self._replay(epoch)
                else:
                    tasks = iterator.__dict__.get("_task_info")
                    arrival = None if tasks is None else _Arrival(iterator, tasks)
                    asked = clock()
                    batch = original(iterator)
            except StopIteration:
                tape.spans.append(
                    ("stop", begin, tape.now(), seen.number, epoch.number, -1, False, False, grad, None, cpu)
                )
                tape.stage = tape.rest = None
                self.fresh.clear()
                raise
            end = tape.now()
            number, ready, blocked = (epoch.num_given, False, False) if arrival is None else arrival.told()
            pointers, samples = look_at(batch)
            tape.spans.append(
                ("next", begin, end, seen.number, epoch.number, number, ready, blocked, grad, samples, cpu)
            )
            self._took(epoch, batch, pointers, grad=grad)
            tape.own.append(asked - begin + clock() - end)
            return batch

        return __next__

    def _next_elsewhere(self, original: Callable[[Any], Any], iterator: Any, epoch: Epoch) -> Any:
        """Another thread than the loop's takes a batch: how long it waits is nobody's wait."""
        self.in_other_thread = True
        is_replayed = self._director.is_replaying and len(epoch.kept) > 0
        batch = self._replay(epoch) if is_replayed else original(iterator)
        epoch.num_given += 1
        return batch

    def _took(self, epoch: Epoch, batch: Any, pointers: set[int], *, grad: bool) -> None:
        tape, seen = self.tape, epoch.seen
        epoch.num_given += 1
        self.num_batches += 1
        tape.rest = tape.stage = "other" if seen.trains else None
        if tape.forwarded and self.fresh:
            self._forget_evaluated(seen)
        tape.give(pointers)
        if grad and seen not in self.fresh:
            self.fresh.append(seen)
        if self._director.is_keeping and seen.trains:
            epoch.kept.settle()
            epoch.kept.offer(batch)

    def _forget_evaluated(self, asked: SeenLoader) -> None:
        """A model saw their batches, no backward pass came, and another loader is asked: no training."""
        for seen in self.fresh:
            seen.trains = seen.trains and seen is asked
        self.fresh = [seen for seen in self.fresh if seen is asked]

    def _replay(self, epoch: Epoch) -> Any:
        if epoch.num_to_give is not None and epoch.num_given >= epoch.num_to_give:
            raise StopIteration
        if not epoch.kept:
            self.lacked_batches = True
            self._director.stop()
        return epoch.kept.give()


def _as_a_dataloaders(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Under the name that torch gives to what its own loaders do: those operators are not the loop's."""
    record = torch.autograd.profiler.record_function

    def __next__(iterator: Any) -> Any:  # noqa: N807
        with record("enumerate(DataLoader)#stoker.__next__"):
            return original(iterator)

    return __next__


class _Arrival:
    """Whether a batch of the workers' lay ready when it was asked for: made before, told after."""

    __slots__ = ("_iterator", "_keys", "_stored", "_tasks", "_was_due_there", "_was_waiting")

    def __init__(self, iterator: Any, tasks: dict[int, Any]) -> None:
        self._iterator, self._tasks = iterator, tasks
        due = tasks.get(iterator._rcvd_idx)  # noqa: SLF001
        self._stored = len(tasks) - iterator._tasks_outstanding  # noqa: SLF001
        self._was_due_there = due is not None and len(due) == 2
        # what is in the queue has arrived too; whether it is the one that is due, shows only afterwards
        self._was_waiting = not self._was_due_there and _holds_any(iterator._data_queue)  # noqa: SLF001
        self._keys = None if getattr(iterator, "_in_order", True) else list(tasks)

    def told(self) -> tuple[int, bool, bool]:
        """Number of the batch, whether it was ready, and whether others were that come later."""
        tasks, iterator = self._tasks, self._iterator
        if self._keys is None:
            number = iterator._rcvd_idx - 1  # noqa: SLF001
        else:
            number = next((key for key in self._keys if key not in tasks), -1)
        later = len(tasks) - iterator._tasks_outstanding  # noqa: SLF001
        is_ready = self._was_due_there or (self._was_waiting and later <= self._stored)
        return number, is_ready, not is_ready and (self._stored > 0 or later > self._stored)


def _holds_any(queue: Any) -> bool:
    """Whether a queue has something for us; asked in every step, and `Queue.empty` of processes is slow."""
    pipe = getattr(queue, "_reader", None)
    if pipe is None:
        return not queue.empty()
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _nothing() -> None:
    """An iterator without workers has none to end."""
