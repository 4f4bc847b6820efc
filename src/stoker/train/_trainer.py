"""The trainer: epochs over a loader, with evaluation, logs and checkpoints."""

import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stoker.errors import StokerError, TrainingInterruptedError, UsageError
from stoker.train._batches import to_device
from stoker.train._checkpoint import load_checkpoint
from stoker.train._checkpoint_folder import CheckpointFolder
from stoker.train._compiled import CompileMode, choose_compile
from stoker.train._distributed import Ranks, choose_device, start_process_group
from stoker.train._engine import Engine, MakeOptimizer
from stoker.train._evaluation import evaluate, measure, predict
from stoker.train._feed import Feed
from stoker.train._journal import Journal, Place, epoch_row
from stoker.train._judge import Judge, is_higher_better
from stoker.train._logs import Log, make_logs
from stoker.train._loss_sum import LossSum
from stoker.train._measures import Measures, Value, read_values
from stoker.train._memory import is_out_of_memory, memory_error, peak_memory_bytes, start_peak
from stoker.train._precision import PrecisionName, choose_precision
from stoker.train._randomness import seed_all
from stoker.train._resume import capture, restore
from stoker.train._schedule import MakeScheduler, make_scheduler, scale_learning_rate
from stoker.train._signals import StopSignals
from stoker.train._task import LossFunction, Task, as_task
from stoker.train._timing import StepTimes
from stoker.train._trial import largest_batch_size

_END = object()  # what next() gives when a loader has no more
_SHOW_EVERY_S = 0.5


@dataclass(frozen=True)
class FitResult:
    """What came of a run."""

    best: dict[str, Value]  # values of the best epoch, of the validation data if there were any
    best_epoch: int | None  # counted from 0
    num_epochs: int  # that were trained in all
    stopped_early: bool
    history: list[dict[str, Any]]  # one row an epoch


class Trainer:
    """Trains a model: epochs over a loader, evaluation, checkpoints, one or many processes.

        trainer = Trainer(model, Supervised(nn.CrossEntropyLoss()), checkpoint_dir="runs/first")
        result = trainer.fit(train, val, epochs=20)

    Losses and metrics stay on the device and are read once per `log_every` steps. A *step* is one batch; an
    *update* changes the weights, after `accumulate` steps. The loss is taken to be the mean over a
    batch's samples: batches of unequal size, within an update or over ranks, are weighted by theirs.

    Under torchrun, or with a process group that exists, it trains with DistributedDataParallel. Make
    the trainer before the loaders then, or both within `process_group()`, so that they know their rank.

    Args:
        model: moved to the device.
        task: a `Task`, or a function ``(model, batch) -> loss`` or ``-> (loss, prediction)``.
        optimizer: one, or what makes one of parameters; by default AdamW with a learning rate of 1e-3.
        scheduler: one that is stepped after every update, or what makes one of (optimizer, number of
            updates in all), such as `WarmupCosine()`.
        precision: of the forward pass; see `choose_precision`.
        compile: "auto" compiles on a GPU; a compile that fails falls back with a warning.
        accumulate: batches in one update.
        clip_norm: the most that the norm of all gradients may be.
        ema: decay of an average of the weights, such as 0.999, which evaluation then uses.
        lr_scaling: the samples in an update for which the learning rate was chosen; it is multiplied by how
            many there really are, over all ranks, divided by this.
        checkpoint_dir: for last.pt, previous.pt, best.pt, metrics.json and logs.
        checkpoint_every: also save after so many steps, not only after every epoch.
        monitor: the value that says which epoch is best: "loss" or a metric, of the validation data if there
            are any.
        mode: whether "min" or "max" is best; "auto" asks the metric.
        early_stopping: epochs without an improvement after which to stop.
        min_delta: an improvement must be larger than this.
        log: "auto" (JSON lines, if there is a folder), "jsonl", "csv", "tensorboard", objects like these,
            or several.
        log_every: steps between two reads of losses from the device.
        progress: show a bar, or lines where there is no terminal.
        measure_training: compute the task's metrics on training batches too.
        device: "auto" is the GPU of this process, if there is one.
        seed: of all random numbers, set when a run begins; None leaves them alone.
        ddp_options: for DistributedDataParallel, such as ``{"find_unused_parameters": True}``.
        config: plain data that is kept in checkpoints.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task | LossFunction,
        *,
        optimizer: Optimizer | MakeOptimizer | None = None,
        scheduler: LRScheduler | MakeScheduler | None = None,
        precision: PrecisionName = "auto",
        compile: CompileMode = "auto",  # noqa: A002 - the name that everybody knows it by
        accumulate: int = 1,
        clip_norm: float | None = None,
        ema: float | None = None,
        lr_scaling: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        monitor: str = "loss",
        mode: Literal["auto", "min", "max"] = "auto",
        early_stopping: int | None = None,
        min_delta: float = 0.0,
        log: str | Log | Sequence[str | Log] | None = "auto",
        log_every: int = 50,
        progress: bool = True,
        measure_training: bool = False,
        device: str | torch.device = "auto",
        seed: int | None = 0,
        ddp_options: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if log_every < 1 or (checkpoint_every is not None and checkpoint_every < 1):
            raise UsageError(
                f"log_every and checkpoint_every must be at least 1, got {log_every} and {checkpoint_every}"
            )
        self.device = choose_device(device)
        self._owns_group = start_process_group(self.device)
        self.ranks = Ranks()
        self.task = as_task(task)
        self.engine = Engine(
            model,
            self.task,
            optimizer=optimizer,
            precision=choose_precision(precision, self.device),
            compile_mode=choose_compile(compile, self.device),
            accumulate=accumulate,
            clip_norm=clip_norm,
            ema=ema,
            ranks=self.ranks,
            device=self.device,
            ddp_options=ddp_options or {},
        )
        self.seed = seed
        self.config = dict(config or {})
        self.epoch = self.step = self.step_in_epoch = 0
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Value] = {}
        self.loss_sum = LossSum()
        self.train_measures = Measures(self.task.metrics() if measure_training else None, self.device)
        self.times, self.times_before = StepTimes(), StepTimes()
        self.peak_memory_bytes = 0
        self._measures = Measures(self.task.metrics(), self.device)
        self._monitor = monitor.removeprefix("val_")
        higher = is_higher_better(self._monitor, mode, self._measures.higher_is_better(self._monitor))
        self.judge = Judge(higher=higher, patience=early_stopping, min_delta=min_delta)
        self._scheduler = scheduler
        self._lr_scaling = lr_scaling
        self._log_every, self._checkpoint_every = log_every, checkpoint_every
        self._folder = None if checkpoint_dir is None else CheckpointFolder(Path(checkpoint_dir))
        run_folder = None if self._folder is None else self._folder.folder
        self._logs = make_logs(log, run_folder) if self.ranks.is_first else []
        self._progress = progress
        self._journal: Journal  # of the fit that goes on
        self._accounted_s = 0.0  # up to which time of the clock `times` are
        self._said_uneven = False
        self.settings = {
            "precision": self.engine.precision.name,
            "accumulate": accumulate,
            "clip_norm": clip_norm,
            "ema": ema,
            "lr_scaling": lr_scaling,
            "monitor": monitor,
            "seed": seed,
            "world_size": self.ranks.world_size,
        }

    @property
    def model(self) -> nn.Module:
        """The model itself, neither wrapped nor compiled."""
        return self.engine.model

    @property
    def num_updates(self) -> int:
        """Updates of the weights so far."""
        return self.engine.num_updates

    def fit(
        self,
        train: Iterable[Any],
        val: Iterable[Any] | None = None,
        *,
        epochs: int,
        resume: str | os.PathLike[str] | None = None,
    ) -> FitResult:
        """Train until there were `epochs` epochs in all.

        Args:
            train: gives the batches of an epoch each time it is iterated over: a `stoker.Loader`, a
                DataLoader. Where it has set_epoch, state_dict and load_state_dict, they are used.
            val: evaluated after every epoch.
            epochs: the number of epochs in all, those before a resumed checkpoint included.
            resume: "last", "previous", "best" or a path: go on from that checkpoint. "auto": from the
                last if there is one. "fresh": begin anew in a folder with checkpoints. None: there must
                be none.

        Raises:
            TrainingInterruptedError: SIGTERM or SIGINT (Ctrl-C) came; the step was finished and a
                checkpoint written. A second Ctrl-C stops at once.
            DeviceMemoryError: a step does not fit; says what would help.
            DamagedCheckpointError: the checkpoint to go on from is damaged; nothing else is tried.
        """
        if self.step_in_epoch and resume is None:
            raise UsageError(
                f"the run before was left in the middle of epoch {self.epoch}; pass resume='last', "
                f"or make a new trainer"
            )
        feed = Feed(train, world_size=self.ranks.world_size)
        self._journal = self._new_journal()
        self._prepare(feed, epochs)
        batches = self._start(feed, resume, epochs)
        steps = feed.num_steps()
        num_steps = None if steps is None else steps * epochs
        with (
            StopSignals() as stop,
            self._journal.opened(step=self.step, epoch=self.epoch, num_steps=num_steps),
        ):
            while not self._is_complete(epochs):
                if batches is None:
                    batches = self._begin_epoch(feed)
                self._train_epoch(feed, batches, stop)
                self._end_epoch(feed, val, stop, epochs)
                batches = None
            if self.ranks.added(stop.requested != 0)[0]:
                self._interrupt(feed, stop)  # it came while the last checkpoint was written
        return FitResult(self.best, self.judge.best_epoch, self.epoch, self.judge.has_enough, self.history)

    def evaluate(self, loader: Iterable[Any]) -> dict[str, Value]:
        """The mean loss and the task's metrics over all batches of all ranks; averaged weights if there are.

        Every rank must call it. Random numbers stand afterwards where they stood.
        """
        values = evaluate(self.engine, loader, self._measures, self.device, stop=None)
        assert values is not None
        return values

    def predict(self, loader: Iterable[Any]) -> Any:
        """The task's predictions for all batches of this rank, one after the other, on the CPU.

        Tensors are joined along their first dimension, also within dicts and tuples.
        """
        return predict(self.engine, loader, self.device)

    def find_batch_size(
        self,
        make_loader: Callable[[int], Iterable[Any]],
        *,
        start: int = 1,
        maximum: int = 65536,
        num_steps: int = 2,
    ) -> int:
        """The largest batch size of which whole steps fit; model and random numbers stay as they are.

        Args:
            make_loader: gives a loader for a batch size; it is closed again.
            start: tried first.
            maximum: never more; nor more than a loader gives in one batch.
            num_steps: tried of each size.
        """
        return self.ranks.smallest(
            largest_batch_size(
                self.engine, self.device, make_loader, start=start, maximum=maximum, num_steps=num_steps
            )
        )

    def close(self) -> None:
        """Leave the process group, if the trainer joined it."""
        self.ranks.close()
        if self._owns_group and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        self._owns_group = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _prepare(self, feed: Feed, epochs: int) -> None:
        """Learning rate and scheduler need to know the loader; both are made once."""
        if epochs < 1:
            raise UsageError(f"epochs must be at least 1, got {epochs}")
        if self._lr_scaling is not None:
            size = getattr(feed.loader, "batch_size", None)
            if not isinstance(size, int):
                raise UsageError(
                    "lr_scaling needs a loader that says its batch_size, as stoker.Loader does; or scale lr"
                )
            samples = size * self.ranks.world_size * self.engine.window.length
            scale_learning_rate(self.engine.optimizer, samples_per_update=samples, reference=self._lr_scaling)
            self._lr_scaling = None
        if self._scheduler is not None and self.engine.scheduler is None:
            steps = feed.num_steps()
            updates = None if steps is None else epochs * math.ceil(steps / self.engine.window.length)
            self.engine.scheduler = make_scheduler(self._scheduler, self.engine.optimizer, updates)

    def _is_complete(self, epochs: int) -> bool:
        return self.epoch >= epochs or self.judge.has_enough

    def _start(self, feed: Feed, resume: str | os.PathLike[str] | None, epochs: int) -> Iterator[Any] | None:
        """Begin anew or go on; gives the rest of an epoch, if there is one."""
        path: Path | None = None
        if resume is not None and resume != "fresh":
            if self._folder is None and not Path(resume).is_file():
                raise UsageError(f"resume={str(resume)!r} needs a checkpoint_dir, or a checkpoint's path")
            folder = self._folder or CheckpointFolder(Path(resume).parent)
            path = self.ranks.told(folder.find(Path(resume) if isinstance(resume, os.PathLike) else resume))
        if path is not None:
            batches = restore(self, feed, load_checkpoint(path, device="cpu"), str(path))
            self._journal.begin_interval(self.times)
            self.engine.model.train()
            if self._is_complete(epochs):
                self._journal.line(f"nothing to go on with: {path} is complete after {self.epoch} epochs")
            else:
                self._journal.line(f"going on from {path}: epoch {self.epoch + 1}, step {self.step}")
            return batches
        if self.step == 0 and self._folder is not None:
            if resume is None:
                self._folder.refuse_if_used()
            elif self.ranks.is_first:
                self._folder.clear()
        if self.step == 0 and self.seed is not None:
            seed_all(self.seed + self.ranks.rank)
        return None

    def _begin_epoch(self, feed: Feed) -> Iterator[Any]:
        self.loss_sum.reset()
        self.train_measures.reset()
        self.times = StepTimes()
        self._journal.begin_interval(self.times)
        self.engine.model.train()
        start_peak(self.device)
        return feed.begin(self.epoch)

    def _train_epoch(self, feed: Feed, batches: Iterator[Any], stop: StopSignals) -> None:
        """Every step of the epoch, or of its rest: the path on which every microsecond counts."""
        engine, ranks, times, device = self.engine, self.ranks, self.times, self.device
        count, clock, alone = self.task.num_samples, time.perf_counter, ranks.world_size == 1
        own, shown_s, stopping = 0, 0.0, False
        try:
            began_s = asked_s = clock()
            while (batch := _next(batches, stop)) is not _END or not alone:
                fetched_s = ready_s = clock()
                own = total = 0 if batch is _END else count(batch)
                if not alone:
                    num_with, total, num_stops = ranks.added(batch is not _END, own, stop.requested != 0)
                    stopping = num_stops > 0
                    if num_with < ranks.world_size:
                        self._say_uneven(num_with)
                        break
                    ready_s = clock()
                batch = to_device(batch, device)
                copied_s = clock()
                loss, prediction = engine.step(batch, own, total)
                self.loss_sum.add(loss, own)
                if self.train_measures:
                    measure(self.task, self.train_measures, prediction, batch)
                del batch, loss, prediction  # a loader may use a batch's memory again
                self.step += 1
                self.step_in_epoch += 1
                ended_s = clock()
                times.add(fetched_s - asked_s, copied_s - ready_s, ended_s - began_s, total)
                began_s = ended_s
                if self.step % self._log_every == 0:
                    self._journal.interval(self._place(), self.loss_sum.interval_mean(ranks), times)
                    shown_s = ended_s
                elif ended_s - shown_s > _SHOW_EVERY_S:
                    self._journal.show(self._place(), times)
                    shown_s = ended_s
                if self._checkpoint_every is not None and self.step % self._checkpoint_every == 0:
                    self._save(feed)
                if stopping or (alone and stop.requested):
                    self._interrupt(feed, stop)
                asked_s = clock()  # what was logged and saved took time too, but not the loader's
            self._accounted_s = began_s
            if stopping or (alone and stop.requested):
                self._interrupt(feed, stop)
            engine.flush()
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, StokerError) or not is_out_of_memory(error):
                raise
            raise memory_error(
                error,
                device=device,
                batch_size=own or None,
                accumulate=engine.window.length,
                precision=engine.precision.name,
            ) from error

    def _end_epoch(self, feed: Feed, val: Iterable[Any] | None, stop: StopSignals, epochs: int) -> None:
        if self.times.num_steps == 0:
            raise UsageError(
                "the training loader gave no batch: is its data empty, or less than one batch to drop?"
            )
        if self.ranks.added(stop.requested != 0)[0]:
            self._interrupt(feed, stop)
        trained = read_values({"loss": self.loss_sum.mean(self.ranks), **self.train_measures.compute()})
        self.times.total_s += time.perf_counter() - self._accounted_s  # until the device was done, too
        evaluated = None
        if val is not None:
            evaluated = evaluate(self.engine, val, self._measures, self.device, stop=stop)
            if evaluated is None:
                self._interrupt(feed, stop)
        judged = trained if evaluated is None else evaluated
        improved = self.judge.is_improvement(self._watched(judged), self.epoch)
        if improved:
            self.best = judged
        self.peak_memory_bytes = max(self.peak_memory_bytes, peak_memory_bytes(self.device))
        row = epoch_row(self._place(), trained, evaluated, self.times, self.peak_memory_bytes)
        self.history.append(row)
        self.epoch, self.step_in_epoch = self.epoch + 1, 0
        self.times_before = self.times_before.plus(self.times)
        self.times = StepTimes()
        self._save(feed, best=improved)
        self._journal.epoch(row, epochs)
        self._journal.run(
            self.history,
            best=self.best,
            best_epoch=self.judge.best_epoch,
            monitor=self._monitor,
            times=self.times_before,
            peak_memory_bytes=self.peak_memory_bytes,
        )

    def _watched(self, values: Mapping[str, Value]) -> float:
        value = values.get(self._monitor)
        if not isinstance(value, float):
            known = [name for name, each in values.items() if isinstance(each, float)]
            raise UsageError(f"monitor must be one of {', '.join(known)}, got {self._monitor!r}")
        return value

    def _save(self, feed: Feed, *, best: bool = False) -> None:
        """Write a checkpoint, if there is a folder; all ranks take part, and fail if the first one does."""
        if self._folder is None:
            return
        state = capture(self, feed)
        failed: Exception | None = None
        if self.ranks.is_first:
            try:
                self._folder.save(state, best=best)
            except Exception as error:  # noqa: BLE001 - raised below, on every rank
                failed = error
        failed = self.ranks.told(failed)
        if failed is not None:
            raise failed

    def _interrupt(self, feed: Feed, stop: StopSignals) -> NoReturn:
        number = stop.requested or signal.SIGTERM  # it may have come to another rank only
        self._save(feed)
        saved = (
            "nothing is saved, for there is no checkpoint_dir"
            if self._folder is None
            else f"saved in {self._folder.last}; go on with resume='auto' (--resume auto)"
        )
        message = f"{signal.Signals(number).name} ended the training after step {self.step}: {saved}"
        self._journal.line(message)
        raise TrainingInterruptedError(message, number)

    def _new_journal(self) -> Journal:
        first = self.ranks.is_first
        metrics_path = self._folder.folder / "metrics.json" if self._folder is not None and first else None
        return Journal(self._logs, metrics_path, show=self._progress and first)

    def _place(self) -> Place:
        rate = float(self.engine.optimizer.param_groups[0]["lr"])
        return Place(self.epoch, self.step, self.num_updates, rate)

    def _say_uneven(self, num_with: int) -> None:
        if num_with and not self._said_uneven and self.ranks.is_first:
            self._said_uneven = True
            warnings.warn(
                f"{num_with} of {self.ranks.world_size} ranks have batches left: an epoch ends with the "
                f"first that has none; stoker.Loader gives all ranks equally many",
                stacklevel=4,
            )


def _next(batches: Iterator[Any], stop: StopSignals) -> Any:
    """The next batch, or the end: also where a loader's workers died of the signal that came to all."""
    try:
        return next(batches, _END)
    except Exception:
        if stop.requested:
            return _END
        raise
