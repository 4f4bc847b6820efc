"""Training, evaluation and prediction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stoker.errors import UsageError
from stoker.recipes._recipe import Outcome
from stoker.recipes._settings import make_trainer
from stoker.recipes._stage import load_trained, trained_checkpoint, write_evaluation
from stoker.recipes._windows import window_loader
from stoker.recipes.emg_pose._augment import make_augment
from stoker.recipes.emg_pose._data import Collection, fit_statistics, open_collection
from stoker.recipes.emg_pose._model import PoseNet
from stoker.recipes.emg_pose._predictions import write_predictions
from stoker.recipes.emg_pose._settings import EmgSettings
from stoker.recipes.emg_pose._synthetic import make_synthetic
from stoker.recipes.emg_pose._task import PoseTask
from stoker.train import Trainer, is_first, load_checkpoint, load_weights, process_group, wait_for_all


def run(stage: str, settings: EmgSettings) -> Outcome:
    """One of "train", "evaluate" and "predict", in this process or in all that torchrun started."""
    with process_group(settings.training.device) as device:
        collection = open_collection(_data(settings))
        if stage == "train":
            return _train(collection, settings, device)
        model, trained_with = _load_model(settings)
        if stage == "evaluate":
            return _evaluate(collection, model, trained_with, settings, device)
        if stage == "predict":
            return _predict(collection, model, trained_with, settings, device)
    raise UsageError(f"there is no stage {stage!r}; there are train, evaluate and predict")


def _train(collection: Collection, settings: EmgSettings, device: torch.device) -> Outcome:
    folder = settings.out / "train"
    torch.manual_seed(settings.seed)
    padding = settings.windows.padding
    model = PoseNet(settings.model, padding=padding, statistics=fit_statistics(collection, settings))
    if settings.pretrained is not None:
        load_weights(model, load_checkpoint(settings.pretrained), settings.pretrained)
    trainer = _trainer(model, settings, settings, folder)
    train_view, train_sessions = collection.windows("train", settings.windows, train=True)
    val_view, val_sessions = collection.windows("val", settings.windows)
    augment = make_augment(settings.augment, seed=settings.seed)
    with (
        trainer,
        train_view,
        val_view,
        window_loader(train_view, settings, device=device, shuffle=True, augment=augment) as train,
        window_loader(val_view, settings, device=device) as val,
    ):
        result = trainer.fit(train, val, epochs=settings.training.epochs, resume=settings.resume)
    notes = (
        f"{len(train_view)} windows of {len(train_sessions)} sessions to learn from",
        f"{len(val_view)} windows of {len(val_sessions)} sessions to validate",
        f"best epoch {(result.best_epoch or 0) + 1} of {result.num_epochs}; every joint in metrics.json",
    )
    return Outcome(folder, _main_values(result.best), folder / "best.pt", notes)


def _evaluate(
    collection: Collection,
    model: PoseNet,
    trained_with: EmgSettings,
    settings: EmgSettings,
    device: torch.device,
) -> Outcome:
    """The model's errors, the mean pose's beside them, and those of each kind of generalization."""
    folder = settings.out / "evaluate"
    windows = settings.windows.model_copy(update={"padding": trained_with.windows.padding})
    view, sessions = collection.windows(settings.evaluation.split, windows)
    parts: dict[str, list[int]] = {}
    for number, session in enumerate(sessions):
        if session.generalization:
            parts.setdefault(session.generalization, []).append(number)
    views = {"": view} | {
        f"{name}/": view.subset(members)
        for name, members in sorted(parts.items())
        if len(members) < len(sessions)
    }
    values: dict[str, Any] = {}
    with view, _trainer(model, trained_with, settings, None) as trainer:
        for name, part in views.items():
            with window_loader(part, settings, device=device) as loader:
                values |= {f"{name}{key}": value for key, value in trainer.evaluate(loader).items()}
        constant = _MeanPose(model.angle_mean, windows.length)
        with (
            _trainer(constant, trained_with, settings, None) as mean_trainer,
            window_loader(view, settings, device=device) as loader,
        ):
            values["mean_pose_mae"] = mean_trainer.evaluate(loader)["mae"]
    values["fraction_of_mean_pose"] = values["mae"] / values["mean_pose_mae"]
    write_evaluation(folder, values, split=settings.evaluation.split)
    notes = (f"{len(view)} windows of {len(sessions)} sessions; every joint in evaluation.json",)
    return Outcome(folder, _main_values(values), trained_checkpoint(settings), notes)


def _predict(
    collection: Collection,
    model: PoseNet,
    trained_with: EmgSettings,
    settings: EmgSettings,
    device: torch.device,
) -> Outcome:
    """Predictions of all sessions of the split, by the first rank alone."""
    folder = settings.out / "predict"
    padding = trained_with.windows.padding
    windows = settings.windows.model_copy(update={"padding": padding, "stride": None})
    target = folder / "predictions.h5"
    counts: Mapping[str, float] = {}
    with _trainer(model, trained_with, settings, None) as trainer:
        if is_first():
            view, sessions = collection.windows(
                settings.evaluation.split, windows, skip_failed=False, fields=("emg",)
            )
            with view, window_loader(view, settings, device=device, alone=True) as loader:
                counts = write_predictions(target, trainer, loader, view, sessions)
        wait_for_all()
    return Outcome(folder, counts, trained_checkpoint(settings), (f"angles by session in {target}",))


class _MeanPose(nn.Module):
    """Always the same pose, whatever the EMG."""

    def __init__(self, mean: Tensor, length: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.detach().clone())
        self._length = length

    def forward(self, emg: Tensor) -> Tensor:
        return self.mean[:, None].expand(len(emg), -1, self._length)


def _trainer(
    model: nn.Module, trained_with: EmgSettings, settings: EmgSettings, folder: Path | None
) -> Trainer:
    task = PoseTask(trained_with.loss, settings.measuring, trained_with.windows.padding)
    return make_trainer(model, task, settings, folder=folder, options={"mode": "min"})


def _load_model(settings: EmgSettings) -> tuple[PoseNet, EmgSettings]:
    """The trained model, with the sizes and context that it was trained with."""
    path = trained_checkpoint(settings)
    state, trained_with = load_trained(path, EmgSettings, sections={"model", "windows"})
    model = PoseNet(trained_with.model, padding=trained_with.windows.padding)
    load_weights(model, state, path)
    return model, trained_with


def _data(settings: EmgSettings) -> Path:
    """The data that was named, or synthetic sessions, which the first rank writes."""
    if settings.data is not None:
        return settings.data
    folder = settings.out / "synthetic"
    if is_first():
        make_synthetic(folder, settings.synthetic, seed=settings.seed)
    wait_for_all()
    return folder


def _main_values(values: Mapping[str, Any]) -> dict[str, float]:
    """Without those of each joint, finger and group."""
    return {key: value for key, value in values.items() if "/" not in key or key.endswith("/mae")}
