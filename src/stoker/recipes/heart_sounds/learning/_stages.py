"""The stages: pretrain, supervised, finetune, evaluate. Each ends with files in a folder of its own."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stoker
from stoker.errors import UsageError
from stoker.loader import balanced_weights
from stoker.recipes._recipe import Outcome
from stoker.recipes._settings import make_trainer
from stoker.recipes._stage import write_evaluation
from stoker.recipes.heart_sounds._data import make_store, open_data
from stoker.recipes.heart_sounds._settings import HeartSoundSettings
from stoker.recipes.heart_sounds._subsets import labelled, subset
from stoker.recipes.heart_sounds._tasks import TASKS
from stoker.recipes.heart_sounds.learning._classifier import Classifier, ClassifierTask, class_weights
from stoker.recipes.heart_sounds.learning._contrast import Contrast, ContrastTask
from stoker.recipes.heart_sounds.learning._encoder import Encoder
from stoker.recipes.heart_sounds.learning._evaluation import Judgement, evaluate
from stoker.recipes.heart_sounds.learning._momentum import follow_after
from stoker.recipes.heart_sounds.learning._views import classifier_pipeline, pretraining_views
from stoker.recipes.heart_sounds.learning._weights import encoder_of, read_weights
from stoker.train import is_first, process_group, wait_for_all

Notes = tuple[str, ...]


def run(stage: str, settings: HeartSoundSettings) -> Outcome:
    """One stage, in one process or as one of several that torchrun started."""
    notes = make_store(settings) if is_first() else ()  # before there is a group, which has a time limit
    training = settings.pretraining if stage == "pretrain" else settings.training
    with process_group(training.device) as device:
        wait_for_all()
        return _STAGES[stage](settings.model_copy(update={"training": training}), device, notes)


def _pretrain(settings: HeartSoundSettings, device: torch.device, notes: Notes) -> Outcome:
    """The encoder learns from cycles without labels: those of the training split only."""
    store = open_data(settings, with_label=False)
    train, val = (_split(store, settings, name) for name in ("train", "val"))
    torch.manual_seed(settings.seed)
    model = Contrast(Encoder(**settings.encoder.model_dump()), settings.contrast)
    task = ContrastTask(model, settings.contrast)
    views = pretraining_views(path=settings.views.augment, rate=settings.cycles.rate, seed=settings.seed)
    folder = settings.out / "pretrain"

    def optimizer(weights: Any) -> torch.optim.Optimizer:
        ask = settings.training
        made = torch.optim.AdamW(weights, lr=ask.lr, weight_decay=ask.weight_decay)
        if model.copy is not None:
            follow_after(made, model.copy, model.copied())
        return made

    with ExitStack() as stack:
        trainer = stack.enter_context(make_trainer(model, task, settings, folder=folder, optimizer=optimizer))
        fields = ("x", "bounds", "recording_id")
        options = {"device": device, "pad": True}  # equal batches: ranks compare with each other's
        val_loader = stack.enter_context(
            _loader(val, settings, shuffle=False, augment=views, fields=fields, **options)
        )
        if settings.views.refresh_epochs is None:
            loader = _loader(train, settings, augment=views, fields=fields, **options)
        else:
            cache = stoker.ViewCache(
                train,
                views,
                settings.out / "views",
                copies=1,
                refresh_epochs=settings.views.refresh_epochs,
                seed=settings.seed,
            )
            loader = _loader(stack.enter_context(cache), settings, **options)
        stack.enter_context(loader)
        result = trainer.fit(loader, val_loader, epochs=settings.training.epochs, resume=settings.resume)
    return Outcome(folder, _floats(result.best), folder / "best.pt", notes)


def _supervised(settings: HeartSoundSettings, device: torch.device, notes: Notes) -> Outcome:
    """A classifier from random weights."""
    torch.manual_seed(settings.seed)
    encoder = Encoder(**settings.encoder.model_dump())
    folder = settings.out / f"supervised-{settings.task}"
    return _train_classifier(settings, encoder, device, folder, notes, frozen=False)


def _finetune(settings: HeartSoundSettings, device: torch.device, notes: Notes) -> Outcome:
    """A classifier from pre-trained weights: all of it, or a linear head on the frozen encoder."""
    ask = settings.finetune
    torch.manual_seed(settings.seed)
    if ask.from_scratch:
        encoder = Encoder(**settings.encoder.model_dump())
    else:
        path = settings.pretrained or settings.out / "pretrain" / "best.pt"
        encoder = encoder_of(path, settings)
        notes = (*notes, f"from the weights in {path}")
    name = f"{ask.mode}-{settings.task}{'-from-scratch' if ask.from_scratch else ''}"
    return _train_classifier(
        settings, encoder, device, settings.out / name, notes, frozen=ask.mode == "probe"
    )


def _evaluate(settings: HeartSoundSettings, device: torch.device, notes: Notes) -> Outcome:
    """A trained classifier's values on the test split, by thresholds from the validation split."""
    path = settings.pretrained or settings.out / f"supervised-{settings.task}" / "best.pt"
    saved = read_weights(path, settings)
    store = open_data(settings, with_label=True)
    classes = store.classes[TASKS[settings.task].field]
    head = {name: value for name, value in saved.model.items() if name.startswith("head.")}
    last = max((name for name in head if name.endswith(".weight")), key=lambda name: int(name.split(".")[1]))
    first = min((name for name in head if name.endswith(".weight")), key=lambda name: int(name.split(".")[1]))
    if len(head[last]) != len(classes):
        raise UsageError(f"{path} tells {len(head[last])} classes apart, {settings.task} has {len(classes)}")
    model = Classifier(
        Encoder(**saved.encoder),
        len(classes),
        hidden=0 if first == last else len(head[first]),
        dropout=settings.classifier.dropout,
    )
    model.load_state_dict(saved.model)
    values = _values(model.to(device), settings, store, device)
    folder = settings.out / f"evaluate-{settings.task}"
    write_evaluation(folder, values, task=settings.task, checkpoint=str(path))
    return Outcome(folder, values, path, notes)


def _train_classifier(
    settings: HeartSoundSettings,
    encoder: Encoder,
    device: torch.device,
    folder: Path,
    notes: Notes,
    *,
    frozen: bool,
) -> Outcome:
    store, field = open_data(settings, with_label=True), TASKS[settings.task].field
    ask = settings.classifier
    num_classes = len(store.classes[field])
    train = labelled(
        _split(store, settings, "train"), field, fraction=settings.label_fraction, seed=settings.seed
    )
    val = labelled(_split(store, settings, "val"), field)
    labels = np.asarray(train.column(field))
    weights = class_weights(labels, num_classes) if ask.balance in {"weights", "focal"} else None
    model = Classifier(
        encoder, num_classes, hidden=0 if frozen else ask.hidden, dropout=ask.dropout, frozen=frozen
    )
    task = ClassifierTask(field, num_classes, ask, weights)
    augment = None
    if ask.augment is not False:
        path = ask.augment if isinstance(ask.augment, Path) else None
        augment = classifier_pipeline(path=path, seed=settings.seed)
    options: dict[str, Any] = {"device": device, "fields": ("x", field)}
    draws = balanced_weights(labels) if ask.balance == "sampler" else None
    with (
        make_trainer(model, task, settings, folder=folder, optimizer=_optimizer(model, settings)) as trainer,
        _loader(train, settings, augment=augment, weights=draws, **options) as loader,
        _loader(val, settings, shuffle=False, **options) as val_loader,
    ):
        trainer.fit(loader, val_loader, epochs=settings.training.epochs, resume=settings.resume)
    model.load_state_dict(read_weights(folder / "best.pt", settings).model)
    values = _values(model, settings, store, device)
    write_evaluation(folder, values, task=settings.task, checkpoint=str(folder / "best.pt"))
    used = f"{len(train)} cycles of {len(set(train.column('patient')))} patients were trained on"
    return Outcome(folder, values, folder / "best.pt", (*notes, used))


@torch.no_grad()
def _values(
    model: Classifier, settings: HeartSoundSettings, store: stoker.Store, device: torch.device
) -> dict[str, float]:
    """Of the test split, in float32; every rank judges all of it, so that none needs the others' answers."""
    question = TASKS[settings.task]
    classes = store.classes[question.field]
    judged = {}
    model.eval()
    for name in ("val", "test"):
        part = labelled(_split(store, settings, name), question.field)
        with _loader(
            part, settings, shuffle=False, device=device, fields=("x",), rank=0, world_size=1
        ) as loader:
            probabilities = torch.cat([model(batch["x"]).softmax(dim=1).cpu() for batch in loader])
        labels = torch.from_numpy(np.asarray(part.column(question.field)))
        judged[name] = Judgement(probabilities, labels, part.column("recording"), part.column("patient"))
    alarm = 1 if len(classes) == 2 else None
    if question.alarm is not None:
        alarm = classes.index(question.alarm)
    return evaluate(judged["test"], judged["val"], alarm=alarm, maximise=settings.classifier.threshold)


def _optimizer(model: Classifier, settings: HeartSoundSettings) -> Callable[[Any], torch.optim.Optimizer]:
    """AdamW; a frozen encoder's head learns faster, an encoder that was trained before slower, if wished."""
    ask, tune = settings.training, settings.finetune

    def make(_: Any) -> torch.optim.Optimizer:
        if model.frozen:
            return torch.optim.AdamW(model.head.parameters(), lr=tune.probe_lr, weight_decay=ask.weight_decay)
        groups: list[dict[str, Any]] = [
            {"params": list(model.head.parameters())},
            {"params": list(model.encoder.parameters()), "lr": ask.lr * tune.encoder_lr_scale},
        ]
        return torch.optim.AdamW(groups, lr=ask.lr, weight_decay=ask.weight_decay)

    return make


def _split(store: stoker.Store, settings: HeartSoundSettings, name: str) -> stoker.Store:
    field = next(iter(store.classes))
    return subset(store, name, fractions=settings.splits.model_dump(), seed=settings.split_seed, field=field)


def _loader(source: Any, settings: HeartSoundSettings, **options: Any) -> stoker.Loader:
    asked = settings.loading.model_dump()
    return stoker.Loader(source, settings.training.batch_size, seed=settings.seed, **asked, **options)


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, float)}


_STAGES: dict[str, Callable[[HeartSoundSettings, torch.device, Notes], Outcome]] = {
    "pretrain": _pretrain,
    "supervised": _supervised,
    "finetune": _finetune,
    "evaluate": _evaluate,
}
