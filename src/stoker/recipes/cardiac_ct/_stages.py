"""Training, evaluation and prediction."""

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stoker.errors import UsageError
from stoker.recipes._recipe import Outcome
from stoker.recipes._settings import make_trainer
from stoker.recipes._stage import load_trained, trained_checkpoint, write_evaluation
from stoker.recipes.cardiac_ct._augment import make_augment
from stoker.recipes.cardiac_ct._data import Collection, batches, open_collection
from stoker.recipes.cardiac_ct._model import CardiacNet, Statistics, fit_statistics
from stoker.recipes.cardiac_ct._prepare import prepare
from stoker.recipes.cardiac_ct._settings import CardiacSettings
from stoker.recipes.cardiac_ct._splits import deal, members, read_kept, write_kept
from stoker.recipes.cardiac_ct._synthetic import make_synthetic
from stoker.recipes.cardiac_ct._task import CardiacTask
from stoker.train import Trainer, is_first, load_checkpoint, load_weights, process_group, wait_for_all


def run(stage: str, settings: CardiacSettings) -> Outcome:
    """One of "train", "evaluate" and "predict", in this process or in all that torchrun started."""
    with process_group(settings.training.device) as device:
        if stage == "train":
            return _train(_open(settings), settings, device)
        if stage not in {"evaluate", "predict"}:
            raise UsageError(f"there is no stage {stage!r}; there are train, evaluate and predict")
        model, trained_with = _load_model(settings)
        same = {"volume": trained_with.volume, "labels": _with_tables(trained_with, settings)}
        settings = settings.model_copy(update=same)
        collection = _open(settings)
        return (_evaluate if stage == "evaluate" else _predict)(collection, model, settings, device)


def _train(collection: Collection, settings: CardiacSettings, device: torch.device) -> Outcome:
    folder = settings.out / "train"
    splits = _splits(collection, settings, folder, note=True)
    chosen = {name: members(splits, name, collection.labelled) for name in ("train", "val")}
    torch.manual_seed(settings.seed)
    model = CardiacNet(
        settings.model,
        num_regressions=len(settings.labels.regression),
        num_decisions=len(settings.labels.classification),
        statistics=fit_statistics(
            collection.labels.values[chosen["train"]],
            num_regressions=len(settings.labels.regression),
            balance=settings.loss.balance,
        ),
    )
    if settings.pretrained is not None:
        load_weights(model, load_checkpoint(settings.pretrained), settings.pretrained)
    augment = make_augment(settings.augment, settings.volume, seed=settings.seed)
    ask = settings.loading
    with (
        _trainer(model, settings, folder) as trainer,
        batches(
            collection,
            chosen["train"],
            settings,
            device=device,
            shuffle=True,
            augment=augment,
            preload=ask.preload,
        ) as train,
        batches(collection, chosen["val"], settings, device=device, preload=ask.preload_val) as val,
    ):
        result = trainer.fit(train, val, epochs=settings.training.epochs, resume=settings.resume)
        seen = trainer.times_before  # of all epochs
    notes = (
        *collection.notes,
        f"{len(chosen['train'])} studies to learn from, {len(chosen['val'])} to validate",
        f"best epoch {(result.best_epoch or 0) + 1} of {result.num_epochs}",
        f"{seen.samples_per_s:,.1f} volumes/s; {seen.data_wait_fraction:.1%} of the time waited for data",
    )
    return Outcome(folder, _numbers(result.best), folder / "best.pt", notes)


def _evaluate(
    collection: Collection, model: CardiacNet, settings: CardiacSettings, device: torch.device
) -> Outcome:
    """The model's errors, and beside them those of knowing nothing but the training labels."""
    folder = settings.out / "evaluate"
    splits = _splits(collection, settings, trained_checkpoint(settings).parent, note=False)
    chosen = members(splits, settings.evaluation.split, collection.labelled)
    with (
        _trainer(model, settings, None) as trainer,
        batches(collection, chosen, settings, device=device) as loader,
    ):
        values = _numbers(trainer.evaluate(loader))
    values |= trivial_errors(collection, chosen, settings, model.statistics)
    for name in settings.labels.regression:
        values[f"{name}/fraction_of_mean"] = values[f"{name}/mae"] / values[f"{name}/mean_mae"]
    write_evaluation(folder, values, split=settings.evaluation.split)
    patients = len({collection.studies[i].patient for i in chosen})
    notes = (*collection.notes, f"{len(chosen)} studies of {patients} patients")
    return Outcome(folder, values, trained_checkpoint(settings), notes)


def _predict(
    collection: Collection, model: CardiacNet, settings: CardiacSettings, device: torch.device
) -> Outcome:
    """Predictions of all studies of the split, labelled or not, by the first rank alone."""
    folder = settings.out / "predict"
    target = folder / "predictions.csv"
    splits = _splits(collection, settings, trained_checkpoint(settings).parent, note=False)
    chosen = members(splits, settings.evaluation.split, np.ones(len(splits), bool))
    with _trainer(model, settings, None) as trainer:
        if is_first():
            with batches(collection, chosen, settings, device=device, alone=True) as loader:
                predictions = trainer.predict(loader).tolist()
            folder.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".writing-{target.name}")
            with temporary.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([settings.studies.key, settings.studies.patient, *collection.labels.names])
                for number, values in zip(chosen, predictions, strict=True):
                    study = collection.studies[number]
                    writer.writerow([study.key, study.patient, *(f"{value:.5g}" for value in values)])
            temporary.replace(target)
        wait_for_all()
    notes = (*collection.notes, f"numbers and probabilities by study in {target}")
    return Outcome(folder, {"studies": float(len(chosen))}, trained_checkpoint(settings), notes)


def trivial_errors(
    collection: Collection, chosen: Any, settings: CardiacSettings, statistics: Statistics
) -> dict[str, float]:
    """What always saying the training mean, or the chosen studies' more frequent answer, would give."""
    found: dict[str, float] = {}
    for place, name in enumerate(collection.labels.names):
        column = collection.labels.values[chosen, place]
        known = column[~np.isnan(column)].astype(np.float64)
        if place < len(settings.labels.regression):
            error = known - statistics.mean[place]
            found[f"{name}/mean_mae"] = float(np.abs(error).mean()) if len(known) else float("nan")
        else:
            share = float(known.mean()) if len(known) else float("nan")
            found[f"{name}/majority_accuracy"] = max(share, 1 - share)
    return found


def _open(settings: CardiacSettings) -> Collection:
    """The data that was named, or synthetic studies; what is written for it is written by the first rank."""
    data = settings.data or settings.out / "synthetic"
    if is_first():
        if settings.data is None:
            make_synthetic(data, settings.synthetic, seed=settings.seed)
        if settings.packed == "pack" or (settings.data is None and settings.packed == "auto"):
            prepare(data, settings.store_path, settings)
    wait_for_all()
    collection = open_collection(data, settings)
    if is_first() and settings.progress:
        sys.stderr.write(f"{collection.notes[0]}\n")
    return collection


def _splits(
    collection: Collection, settings: CardiacSettings, folder: Path, *, note: bool
) -> tuple[str, ...]:
    """Which study is for what; patients keep what splits.json beside the checkpoint says of them."""
    path = folder / "splits.json"
    kept = read_kept(path) if settings.splits.column is None else {}
    splits = deal(collection.studies, collection.labels, settings.labels, settings.splits, kept)
    wait_for_all()  # all ranks have read it
    if note and is_first():
        write_kept(path, collection.studies, splits, kept)
    return splits


def _trainer(model: CardiacNet, settings: CardiacSettings, folder: Path | None) -> Trainer:
    task = CardiacTask(settings.labels, settings.loss, model.statistics)
    return make_trainer(model, task, settings, folder=folder)


def _load_model(settings: CardiacSettings) -> tuple[CardiacNet, CardiacSettings]:
    """The trained model, with the sizes, volumes and labels that it was trained with."""
    path = trained_checkpoint(settings)
    state, trained_with = load_trained(path, CardiacSettings, sections={"labels", "model", "volume"})
    labels = trained_with.labels
    model = CardiacNet(
        trained_with.model,
        num_regressions=len(labels.regression),
        num_decisions=len(labels.classification),
    )
    load_weights(model, state, path)
    return model, trained_with


def _with_tables(trained_with: CardiacSettings, settings: CardiacSettings) -> Any:
    """The labels that the model knows, out of the table that is named now."""
    return trained_with.labels.model_copy(update={"csv": settings.labels.csv})


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, float)}
