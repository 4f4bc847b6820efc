"""Training, evaluation and prediction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stoker
from stoker.errors import SourceError, UsageError
from stoker.recipes._recipe import Outcome
from stoker.recipes._settings import make_trainer
from stoker.recipes._stage import load_trained, trained_checkpoint, write_evaluation
from stoker.recipes.face_parsing._augment import make_augment
from stoker.recipes.face_parsing._classes import NUM_CLASSES
from stoker.recipes.face_parsing._data import (
    choose_split,
    make_loader,
    make_store,
    open_faces,
    select,
    split_faces,
)
from stoker.recipes.face_parsing._model import FaceParser, num_parameters
from stoker.recipes.face_parsing._predictions import write_predictions
from stoker.recipes.face_parsing._settings import FaceSettings
from stoker.recipes.face_parsing._task import FaceTask
from stoker.train import Trainer, is_first, load_checkpoint, load_weights, process_group, wait_for_all

Notes = tuple[str, ...]


def run(stage: str, settings: FaceSettings) -> Outcome:
    """One of "train", "evaluate" and "predict", in this process or in all that torchrun started."""
    if stage not in {"train", "evaluate", "predict"}:
        raise UsageError(f"there is no stage {stage!r}; there are train, evaluate and predict")
    model = None
    if stage != "train":  # at the size, and with the split, that the model was trained with
        model, trained_with = _load_model(settings)
        settings = settings.model_copy(update={"images": trained_with.images, "loss": trained_with.loss})
    notes = make_store(settings) if is_first() else ()  # before there is a group, which has a time limit
    with process_group(settings.training.device) as device:
        wait_for_all()
        if model is None:
            return _train(settings, device, notes)
        return (_evaluate if stage == "evaluate" else _predict)(model, settings, device, notes)


def _train(settings: FaceSettings, device: torch.device, notes: Notes) -> Outcome:
    folder = settings.out / "train"
    store = open_faces(settings)
    train_faces, val_faces = (select(store, settings, name) for name in ("train", "val"))
    torch.manual_seed(settings.seed)
    model = FaceParser(settings.model)
    if settings.pretrained is not None:
        load_weights(model, load_checkpoint(settings.pretrained), settings.pretrained)
    augment = make_augment(settings.augment, seed=settings.seed)
    with (
        _trainer(model, settings, folder) as trainer,
        make_loader(train_faces, settings, device=device, shuffle=True, augment=augment) as train,
        make_loader(val_faces, settings, device=device) as val,
    ):
        result = trainer.fit(train, val, epochs=settings.training.epochs, resume=settings.resume)
    notes = (
        *notes,
        f"{len(train_faces)} faces to learn from, {len(val_faces)} to validate",
        f"{num_parameters(model)} parameters",
        f"best epoch {(result.best_epoch or 0) + 1} of {result.num_epochs}; every class in metrics.json",
    )
    return Outcome(folder, _main_values(result.best), folder / "best.pt", notes)


def _evaluate(model: FaceParser, settings: FaceSettings, device: torch.device, notes: Notes) -> Outcome:
    """The model's values, and beside them those of always predicting the commonest class at each pixel."""
    folder = settings.out / "evaluate"
    store = open_faces(settings)
    split = choose_split(store, settings, with_masks=True)
    faces = select(store, settings, split)
    num_unknown = int((faces.column("labelled") == 0).sum())
    if num_unknown:
        raise SourceError(
            f"{num_unknown} of {len(faces)} faces for {split!r} have no mask to compare with; "
            f"evaluate others with --set evaluation.split=val, or look at these with --stage predict"
        )
    values = _values(model, faces, settings, device)
    if len(split_faces(store, settings.images)["train"]):
        common = _CommonFace(_count_classes(select(store, settings, "train"), settings, device))
        known = _values(common, faces, settings, device)
        values |= {f"common_face_{name}": known[name] for name in ("f_score", "miou", "accuracy")}
    write_evaluation(folder, values, split=split, num_faces=len(faces))
    notes = (*notes, f"{len(faces)} faces for {split}; every class in evaluation.json")
    return Outcome(folder, _main_values(values), trained_checkpoint(settings), notes)


def _predict(model: FaceParser, settings: FaceSettings, device: torch.device, notes: Notes) -> Outcome:
    """Masks of all faces of the split, by the first rank alone."""
    folder = settings.out / "predict"
    store = open_faces(settings)
    split = choose_split(store, settings, with_masks=False)
    counts: Mapping[str, float] = {}
    with _trainer(model, settings, None) as trainer:
        if is_first():
            faces = select(store, settings, split)
            fields = ("image", "mask", "height", "width")
            with make_loader(faces, settings, device=device, fields=fields, alone=True) as loader:
                counts = write_predictions(folder, trainer, loader, faces, grid=settings.evaluation.grid)
        wait_for_all()
    notes = (*notes, f"{split}: masks in {folder / 'masks'}, some of them to look at in grid.png")
    return Outcome(folder, counts, trained_checkpoint(settings), notes)


class _CommonFace(nn.Module):
    """At each pixel always the class that most training faces have there; counts [19, H, W]."""

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.counts = nn.Parameter(counts)

    def forward(self, image: Tensor) -> Tensor:
        return self.counts.expand(len(image), -1, -1, -1)


def _count_classes(faces: stoker.Store, settings: FaceSettings, device: torch.device) -> Tensor:
    """How many faces have each class at each pixel, [19, H, W]; every rank counts all of them."""
    size = settings.images.size
    counts = torch.zeros(NUM_CLASSES, size, size, device=device)
    with make_loader(faces, settings, device=device, fields=("mask",), alone=True) as loader:
        for batch in loader:
            for number in range(NUM_CLASSES):
                counts[number] += (batch["mask"] == number).sum(0)
    return counts


def _values(
    model: nn.Module, faces: stoker.Store, settings: FaceSettings, device: torch.device
) -> dict[str, Any]:
    with _trainer(model, settings, None) as trainer, make_loader(faces, settings, device=device) as loader:
        return dict(trainer.evaluate(loader))


def _trainer(model: nn.Module, settings: FaceSettings, folder: Path | None) -> Trainer:
    return make_trainer(model, FaceTask(settings.loss), settings, folder=folder)


def _load_model(settings: FaceSettings) -> tuple[FaceParser, FaceSettings]:
    """The trained model, and the settings that it was trained with."""
    path = trained_checkpoint(settings)
    state, trained_with = load_trained(path, FaceSettings, sections={"images", "model"})
    model = FaceParser(trained_with.model)
    load_weights(model, state, path)
    return model, trained_with


def _main_values(values: Mapping[str, Any]) -> dict[str, float]:
    """Without those of each class."""
    return {key: value for key, value in values.items() if "/" not in key}
