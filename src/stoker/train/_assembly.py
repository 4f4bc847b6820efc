"""A run out of its settings: stores, loaders, augmentation, model, task and trainer, in that order."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, cast

import torch
from torch import nn

from stoker.augment import Pipeline, preset
from stoker.config import Facts, TrainSettings, available_memory_bytes, usable_cores
from stoker.errors import ConfigError, UsageError
from stoker.loader import Loader
from stoker.store import Store
from stoker.store._settings import find_object
from stoker.train._distributed import choose_device, process_group
from stoker.train._parts import Part, data_size, opened_parts
from stoker.train._schedule import WarmupCosine
from stoker.train._task import LossFunction, Task
from stoker.train._tasks import TASKS
from stoker.train._trainer import FitResult, Trainer

_FILES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Run:
    """Everything that a run needs, made and connected."""

    settings: TrainSettings
    trainer: Trainer
    train: Loader
    val: Loader | None

    def fit(self, *, resume: str | None = None) -> FitResult:
        """Train as the settings say; see `Trainer.fit` for `resume`."""
        return self.trainer.fit(self.train, self.val, epochs=self.settings.epochs, resume=resume)


@contextmanager
def assembled(settings: TrainSettings, *, progress: bool = True) -> Iterator[Run]:
    """Make a run; under torchrun as one of its processes. Afterwards everything is closed.

    Raises:
        ConfigError: names the setting whose object cannot be found or made.
        StoreError: a store cannot be opened.
    """
    with ExitStack() as stack:
        device = stack.enter_context(process_group(settings.device))
        parts = stack.enter_context(opened_parts(settings.data))
        augment = make_augment(settings)
        torch.manual_seed(settings.seed)  # the model's first weights; the trainer seeds what follows
        trainer = stack.enter_context(
            Trainer(
                _model(settings),
                _task(settings, parts["train"]),
                optimizer=_optimizer(settings),
                scheduler=_scheduler(settings),
                precision=settings.precision,
                compile=settings.compile,
                accumulate=settings.accumulate,
                clip_norm=settings.clip_norm,
                ema=settings.ema,
                lr_scaling=settings.lr_scaling,
                checkpoint_dir=settings.checkpoint_dir,
                checkpoint_every=settings.checkpoint_every,
                monitor=settings.monitor,
                mode=settings.mode,
                early_stopping=settings.early_stopping,
                min_delta=settings.min_delta,
                log=settings.log,
                log_every=settings.log_every,
                progress=progress,
                measure_training=settings.measure_training,
                device=device,
                seed=settings.seed,
                config=settings.model_dump(mode="json"),
            )
        )

        train_loader = functools.partial(training_loader, settings, parts["train"], device, augment=augment)
        size = settings.batch_size
        if size == "auto":
            size = trainer.find_batch_size(train_loader)
        train = stack.enter_context(train_loader(size))
        val = stack.enter_context(_loader(settings, parts["val"], device, size)) if "val" in parts else None
        yield Run(settings, trainer, train, val)


def training_loader(
    settings: TrainSettings,
    part: Part,
    device: torch.device,
    batch_size: int,
    *,
    augment: Pipeline | None,
) -> Loader:
    """The loader of the training data."""
    options = settings.data.loader
    return _loader(
        settings,
        part,
        device,
        batch_size,
        shuffle=options.shuffle,
        drop_last=options.drop_last,
        augment=augment,
    )


def find_facts(settings: TrainSettings) -> Facts:
    """What the profile "auto" decides from; opens the stores, reads no samples."""
    device = choose_device(settings.device)
    memory_bytes = available_memory_bytes()
    data_bytes, compressed = data_size(settings.data)
    on_gpu = device.type == "cuda"
    return Facts(
        cores=usable_cores(),
        memory_bytes=memory_bytes,
        device=device.type,
        device_memory_bytes=torch.cuda.mem_get_info(device)[0] if on_gpu else memory_bytes,
        data_bytes=data_bytes,
        compressed=compressed,
        windows=settings.data.windows is not None,
    )


def _loader(
    settings: TrainSettings,
    part: Part,
    device: torch.device,
    batch_size: int,
    *,
    shuffle: bool | Literal["quasi"] = False,
    drop_last: bool = False,
    augment: Pipeline | None = None,
) -> Loader:
    options = settings.data.loader
    whole = isinstance(part.source, Store)  # and no windows, which were cut of the chosen fields
    return Loader(
        part.source,
        batch_size,
        shuffle=shuffle,
        seed=settings.seed,
        device=device,
        augment=augment,
        drop_last=drop_last,
        weights=part.weights,
        fields=settings.data.fields if whole else None,
        ragged=options.ragged,
        pad_values=options.pad_values,
        num_workers=options.num_workers,
        memory_bytes=options.memory_bytes,
        cache=options.cache if whole else None,
        preload=options.preload if whole else False,
        on_bad_sample=options.on_bad_sample,
    )


def make_augment(settings: TrainSettings) -> Pipeline | None:
    """The pipeline, with the run's seed where it has none of its own."""
    given = settings.augment
    if given is None:
        return None
    with _blame("augment"):
        if isinstance(given, Mapping):
            return Pipeline.from_config({"seed": settings.seed, **given})
        return Pipeline.from_config(given) if given.endswith(_FILES) else preset(given, seed=settings.seed)


def _model(settings: TrainSettings) -> nn.Module:
    with _blame("model"):
        model = _made(find_object(settings.model.name), settings.model.name, settings.model.arguments)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: {settings.model.name!r} must give a torch.nn.Module, got {model!r}")
    return model


def _task(settings: TrainSettings, part: Part) -> Task | LossFunction:
    name, arguments = settings.task.name, settings.task.arguments
    with _blame("task"):
        if ":" in name:
            found = find_object(name)
            task = found if isinstance(found, Task) else _made(found, name, arguments)
            return cast(Task | LossFunction, task)
        if name not in TASKS:
            raise UsageError(
                f"must be one of {', '.join(TASKS)}, or module:callable, got {name!r}{_nearest(name, TASKS)}"
            )
        classes = part.classes.get(str(arguments.get("targets", "y")), ())
        if name == "classification" and classes and "num_classes" not in arguments:
            arguments = {"num_classes": len(classes), "names": list(classes), **arguments}
        return cast(Task, _made(TASKS[name], name, arguments))


def _optimizer(settings: TrainSettings) -> Callable[[Any], torch.optim.Optimizer]:
    """What makes the optimizer of a model's weights."""
    name = settings.optimizer.name
    known = {
        each.lower(): kind
        for each, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and each != "Optimizer"
    }
    with _blame("optimizer"):
        if ":" not in name and name.lower() not in known:
            names = [kind.__name__ for kind in known.values()]
            raise UsageError(
                f"must be one of {', '.join(sorted(names))}, or module:callable, "
                f"got {name!r}{_nearest(name, names)}"
            )
        found = find_object(name) if ":" in name else known[name.lower()]
        arguments = {"lr": settings.optimizer.lr, **settings.optimizer.arguments}
        _check_arguments(found, name, arguments, positional=1)
    return functools.partial(found, **arguments)


def _scheduler(settings: TrainSettings) -> WarmupCosine | None:
    schedule = settings.schedule
    return None if schedule.name == "constant" else WarmupCosine(schedule.warmup, schedule.floor)


def _made(maker: Any, name: str, arguments: Mapping[str, Any]) -> Any:
    if not callable(maker):
        raise UsageError(f"{name!r} must be callable, got {maker!r}")
    _check_arguments(maker, name, arguments, positional=0)
    try:
        return maker(**arguments)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's code does when it is called
        raise UsageError(f"{name!r} cannot be made with {dict(arguments)}: {error!r}") from error


def _check_arguments(maker: Any, name: str, arguments: Mapping[str, Any], *, positional: int) -> None:
    """Raise for arguments that it does not take, with the nearest of those it does, and for missing ones."""
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):  # some builtins have none: calling will tell
        return
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    known = list(signature.parameters)[positional:]
    for argument in arguments:
        if argument not in known and not takes_any:
            raise UsageError(
                f"{name!r} has no argument {argument!r}{_nearest(argument, known)}; "
                f"it has {', '.join(known) or 'none'}"
            )
    try:
        signature.bind(*[None] * positional, **arguments)
    except TypeError as error:
        raise UsageError(f"{name!r} must be given all that it needs: {error}; add it to arguments") from None


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@contextmanager
def _blame(section: str) -> Iterator[None]:
    """Put the name of the section before a mistake that was found in it."""
    try:
        yield
    except UsageError as error:
        raise ConfigError(f"{section}: {error}") from error
