"""Training, evaluation and prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import stoker
from stoker.errors import UsageError
from stoker.recipes._recipe import Outcome
from stoker.recipes._settings import make_trainer
from stoker.recipes._stage import load_trained, trained_checkpoint, write_evaluation
from stoker.recipes._windows import window_loader
from stoker.recipes.printer_tcn._data import (
    Layers,
    make_store,
    normalize,
    open_layers,
    store_path,
)
from stoker.recipes.printer_tcn._model import ImplicitStateTCN
from stoker.recipes.printer_tcn._physics import Dynamics
from stoker.recipes.printer_tcn._predictions import write_predictions
from stoker.recipes.printer_tcn._scaler import Scaler
from stoker.recipes.printer_tcn._settings import PrinterSettings
from stoker.recipes.printer_tcn._synthetic import make_synthetic
from stoker.recipes.printer_tcn._task import PrinterTask
from stoker.train import Trainer, is_first, load_checkpoint, load_weights, process_group, wait_for_all


@dataclass(frozen=True)
class _Run:
    """What a stage works with."""

    settings: PrinterSettings
    trained_with: PrinterSettings  # those of the checkpoint; in training the same
    layers: Layers  # standardised
    model: ImplicitStateTCN
    device: torch.device
    notes: tuple[str, ...]


def run(stage: str, settings: PrinterSettings) -> Outcome:
    """One of "train", "evaluate" and "predict", in this process or in all that torchrun started."""
    stages = {"train": _train, "evaluate": _evaluate, "predict": _predict}
    if stage not in stages:
        raise UsageError(f"there is no stage {stage!r}; there are {', '.join(stages)}")
    with process_group(settings.training.device) as device:
        loaded = None if stage == "train" else _load_model(settings)
        data, notes = _data(settings)
        layers = open_layers(data, settings.splits)
        if loaded is None:
            torch.manual_seed(settings.seed)
            scaler = layers.scaler()
            model = ImplicitStateTCN(settings.model, adaptive=settings.loss.adaptive, scaler=scaler)
            if settings.pretrained is not None:
                load_weights(model, load_checkpoint(settings.pretrained), settings.pretrained)
            loaded = model, settings
        model, trained_with = loaded
        standardised = _standardised(layers, model.scaler, settings)
        return stages[stage](_Run(settings, trained_with, standardised, model, device, notes))


def _train(run: _Run) -> Outcome:
    settings, folder = run.settings, run.settings.out / "train"
    train_view = run.layers.windows("train", settings.windows, train=True)
    val_view = run.layers.windows("val", settings.windows)
    with (
        _trainer(run, folder) as trainer,
        train_view,
        val_view,
        window_loader(train_view, settings, device=run.device, shuffle=True) as train,
        window_loader(val_view, settings, device=run.device) as val,
    ):
        result = trainer.fit(train, val, epochs=settings.training.epochs, resume=settings.resume)
    notes = (
        f"{len(train_view)} windows of {train_view.num_sessions} layers to learn from",
        f"{len(val_view)} windows of {val_view.num_sessions} layers to validate",
        f"best epoch {(result.best_epoch or 0) + 1} of {result.num_epochs}; every target in metrics.json",
    )
    return Outcome(folder, _main_values(result.best), folder / "best.pt", (*notes, *run.notes))


def _evaluate(run: _Run) -> Outcome:
    """The model's errors, and as `fraction_of_mean` what is left of those of the training layers' mean."""
    folder = run.settings.out / "evaluate"
    view = run.layers.windows(run.settings.evaluation.split, run.trained_with.windows)
    with (
        _trainer(run, None) as trainer,
        view,
        window_loader(view, run.settings, device=run.device) as loader,
    ):
        values: dict[str, Any] = dict(trainer.evaluate(loader))
    write_evaluation(folder, values, split=run.settings.evaluation.split)
    notes = (
        f"{len(view)} windows of {view.num_sessions} layers; every target in evaluation.json",
        *run.notes,
    )
    return Outcome(folder, _main_values(values), trained_checkpoint(run.settings), notes)


def _predict(run: _Run) -> Outcome:
    """Predictions for all layers of the split, by the first rank alone."""
    folder, windows = run.settings.out / "predict", run.trained_with.windows
    target = folder / "predictions.h5"
    counts: Mapping[str, float] = {}
    with _trainer(run, None) as trainer:
        if is_first():
            view = run.layers.windows(run.settings.evaluation.split, windows)
            with (
                view,
                window_loader(view, run.settings, device=run.device, alone=True) as loader,
            ):
                counts = write_predictions(
                    target,
                    trainer,
                    loader,
                    view,
                    settled=run.trained_with.model.receptive_field - 1,
                    horizon=windows.horizon,
                    rate=run.layers.rate,
                )
        wait_for_all()
    return Outcome(
        folder,
        counts,
        trained_checkpoint(run.settings),
        (f"states and quality by layer in {target}", *run.notes),
    )


def _trainer(run: _Run, folder: Path | None) -> Trainer:
    trained_with = run.trained_with
    task = PrinterTask(
        trained_with.loss,
        run.model.scaler,
        Dynamics(trained_with.physics.axes, run.layers.rate),
        length=trained_with.windows.length,
        settled=trained_with.model.receptive_field - 1,
    )
    return make_trainer(run.model, task, run.settings, folder=folder, options={"mode": "min"})


def _standardised(layers: Layers, scaler: Scaler, settings: PrinterSettings) -> Layers:
    """The layers' copy in the scaler's units, which the first rank writes."""
    path = settings.out / "normalized.stoker"
    if is_first():
        normalize(layers, scaler, path)
    wait_for_all()
    return Layers(stoker.open(path), layers.splits, layers.rate)


def _data(settings: PrinterSettings) -> tuple[Path, tuple[str, ...]]:
    """The store of the data that was named, or of simulated parts; the first rank writes what is missing."""
    data = settings.data or settings.out / "synthetic"
    notes: tuple[str, ...] = ()
    if is_first():
        if settings.data is None:
            make_synthetic(data, settings)
        path, notes = make_store(data, settings)
    wait_for_all()
    if not is_first():
        path = store_path(data, settings)
    return path, tuple(f"left out: {each}" for each in notes[:5])


def _load_model(settings: PrinterSettings) -> tuple[ImplicitStateTCN, PrinterSettings]:
    """The trained model, with the settings that it was trained with."""
    path = trained_checkpoint(settings)
    state, trained_with = load_trained(path, PrinterSettings, sections={"model", "physics", "windows"})
    model = ImplicitStateTCN(trained_with.model, adaptive=trained_with.loss.adaptive)
    load_weights(model, state, path)
    return model, trained_with


def _main_values(values: Mapping[str, Any]) -> dict[str, float]:
    """Without those of each target and state."""
    return {key: value for key, value in values.items() if "/" not in key}
