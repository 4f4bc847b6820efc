import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.recipes.face_parsing import CLASSES, PALETTE
from stoker.recipes.face_parsing._settings import PROFILES, FaceSettings
from stoker.train import load_checkpoint
from support.commands import call
from support.stages import have_same_weights, run_stage, write_config

TINY = {
    "progress": False,
    "images": {"size": 32, "val_fraction": 0.2},
    "model": {"widths": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "decoder": 8},
    "training": {"epochs": 2, "batch_size": 4, "lr": 0.01, "device": "cpu"},
}


stage = partial(run_stage, "face-parsing")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_config(tmp_path / "tiny.yaml", TINY)


def test_from_raw_files_to_predicted_masks_by_commands(faces: Path, tiny: Path, tmp_path: Path) -> None:
    trained = stage("train", tiny, faces, cwd=tmp_path)
    assert trained["checkpoint"] == "run/train/best.pt"
    metrics = json.loads((tmp_path / "run/train/metrics.json").read_text())
    assert metrics["epochs"] == 2
    assert metrics["monitor"] == "f_score"
    assert f"f_score/{CLASSES[13]}" in metrics["best"]
    # what was trained at 32 pixels is evaluated at 32 pixels, whatever the settings say now
    others = ("--set", "images.size=128", "--set", "images.val_fraction=0.5")
    validated = stage("evaluate", tiny, faces, *others, "--set", "evaluation.split=val", cwd=tmp_path)
    assert validated["values"]["f_score"] == pytest.approx(trained["values"]["f_score"], rel=1e-6)
    evaluated = stage("evaluate", tiny, faces, cwd=tmp_path)
    written = json.loads((tmp_path / "run/evaluate/evaluation.json").read_text())
    assert (written["split"], written["num_faces"]) == ("test", 4)
    assert written["values"]["miou"] == evaluated["values"]["miou"]
    assert 0 < evaluated["values"]["common_face_f_score"] < 1
    predicted = stage("predict", tiny, faces, cwd=tmp_path)
    assert predicted["values"]["masks"] == 4
    assert predicted["values"]["accuracy"] == pytest.approx(evaluated["values"]["accuracy"])
    _check_masks(tmp_path / "run/predict", faces / "test/images")


def _check_masks(folder: Path, images: Path) -> None:
    """A palette PNG for every image, of its size, with classes as indices."""
    assert {path.stem for path in (folder / "masks").iterdir()} == {path.stem for path in images.iterdir()}
    for path in (folder / "masks").iterdir():
        with Image.open(path) as mask:
            assert mask.mode == "P"
            assert mask.size == (64, 64)
            palette = mask.getpalette()
            assert palette is not None
            assert palette[: 3 * len(CLASSES)] == PALETTE[: 3 * len(CLASSES)]
            assert np.array(mask).max() < len(CLASSES)
    with Image.open(folder / "grid.png") as grid:
        assert grid.width > 4 * 192
        assert len(grid.getcolors(1 << 20) or ()) > 50


def test_images_without_masks_are_predicted_and_not_evaluated(
    faces: Path, tiny: Path, tmp_path: Path
) -> None:
    stage("train", tiny, faces, "--set", "training.epochs=1", cwd=tmp_path)
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in (faces / "test/images").iterdir():
        with Image.open(path) as image:
            image.resize((50, 40)).save(photos / path.name)
    found = stage("predict", tiny, photos, cwd=tmp_path)
    assert found["values"] == {"masks": 4.0}
    for path in (tmp_path / "run/predict/masks").iterdir():
        with Image.open(path) as mask:
            assert mask.size == (50, 40)
    words = (
        "train",
        "face-parsing",
        "--config",
        tiny,
        "--data",
        photos,
        "--out",
        "run",
        "--stage",
        "evaluate",
    )
    done = call(*words, "--set", "evaluation.split=test", cwd=tmp_path)
    assert done.returncode == 2
    assert "4 of 4 faces for 'test' have no mask to compare with" in done.stderr


def test_a_packed_store_and_celebamask_train_too(faces: Path, tiny: Path, tmp_path: Path) -> None:
    done = call("pack", "--recipe", "face-parsing", "--config", tiny, faces, "faces.stoker", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    more = ("--set", "training.epochs=1")
    for data, out in ((faces, "files"), (tmp_path / "faces.stoker", "store")):
        stage("train", tiny, data, *more, "--set", f"out={out}", cwd=tmp_path)
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("files", "store")))
    synthetic = (
        "--set",
        "synthetic.num_train=6",
        "--set",
        "synthetic.num_test=0",
        "--set",
        "synthetic.size=32",
    )
    layout = ("--set", "synthetic.layout=celebamask", *synthetic)
    done = call("train", "face-parsing", "--config", tiny, "--out", "run", *layout, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "face-parsing, train: loss" in done.stdout
    assert (tmp_path / "run/synthetic/CelebA-HQ-img/5.jpg").is_file()


def test_a_run_goes_on_to_the_bit(faces: Path, tiny: Path, tmp_path: Path) -> None:
    constant = ("--set", "training.warmup=0", "--set", "training.floor=1", "--set", "training.ema=0.9")
    mixing = ("--set", "augment.mixup_probability=0.5", "--set", "augment.cutmix_probability=0.5")
    common = (*constant, *mixing, "--set", "model.dropout=0.1")
    parts = (*common, "--set", "out=parts", "--set", "training.checkpoint_every=3")
    stage("train", tiny, faces, *parts, "--set", "training.epochs=1", cwd=tmp_path)
    stage("train", tiny, faces, *parts, "--resume", "auto", cwd=tmp_path)
    stage("train", tiny, faces, *common, "--set", "out=whole", cwd=tmp_path)
    assert load_checkpoint(tmp_path / "whole/train/last.pt")["ema"]["average"]
    assert have_same_weights(*(tmp_path / out / "train/last.pt" for out in ("parts", "whole")))


@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")  # of depthwise kernels
def test_two_ranks_train_what_one_process_does(faces: Path, tiny: Path, tmp_path: Path) -> None:
    found = []
    for ranks in (1, 2):
        more = ("training.epochs=1", f"training.batch_size={4 // ranks}", f"out=by-{ranks}")
        words = [word for each in more for word in ("--set", each)]
        found.append(stage("train", tiny, faces, *words, cwd=tmp_path, ranks=ranks)["values"])
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-3)
    assert found[0]["miou"] == pytest.approx(found[1]["miou"], rel=2e-2)


def test_bf16_accumulation_averaging_and_every_loss_work_together(
    faces: Path, tiny: Path, tmp_path: Path
) -> None:
    more = ["training.precision=bf16", "training.accumulate=2", "training.ema=0.9", "loss.focal=1"]
    more += ["augment.mixup_probability=0.3", "augment.cutmix_probability=0.3", "training.epochs=1"]
    words = [word for each in more for word in ("--set", each)]
    trained = stage("train", tiny, faces, *words, cwd=tmp_path)
    found = stage("evaluate", tiny, faces, *words, "--set", "evaluation.split=val", cwd=tmp_path)
    assert found["values"]["f_score"] == pytest.approx(trained["values"]["f_score"], rel=1e-6)
    assert load_checkpoint(tmp_path / "run/train/last.pt")["settings"]["precision"] == "bf16"


@pytest.mark.parametrize(
    ("profile", "size", "batch", "epochs", "lr"),
    [
        ("default", 96, (8, 1), 30, 3e-3),
        ("full", 512, (32, 1), 150, 8e-4),
        ("low_memory", 512, (8, 4), 150, 8e-4),
        ("high_performance", 512, (64, 1), 150, 1.13e-3),
        ("quick_demo", 64, (8, 1), 2, 3e-3),
    ],
)
def test_profiles_are_those_of_the_table(
    profile: str, size: int, batch: tuple[int, int], epochs: int, lr: float, tmp_path: Path
) -> None:
    done = call("train", "face-parsing", "--profile", profile, "--dry-run", "--json", cwd=tmp_path)
    settings = FaceSettings.model_validate_json(done.stdout)
    assert settings.images.size == size
    assert (settings.training.batch_size, settings.training.accumulate) == batch
    assert (settings.training.epochs, settings.training.lr) == (epochs, lr)
    assert set(PROFILES) == {"default", "full", "low_memory", "high_performance", "quick_demo"}


def test_mistakes_are_named(faces: Path, tiny: Path, tmp_path: Path) -> None:
    words = ("train", "face-parsing", "--config", tiny, "--data", faces, "--out", "run")
    done = call(*words, "--stage", "evaluate", cwd=tmp_path)
    assert done.returncode == 2
    assert "best.pt" in done.stderr
    assert "no stage 'pretrain'" in call(*words, "--stage", "pretrain", cwd=tmp_path).stderr
    assert "parameters" in call(*words, "--set", "model.widths=[99,99,256,512]", cwd=tmp_path).stderr
    nowhere = call("train", "face-parsing", "--data", "nowhere", "--out", "run", cwd=tmp_path)
    assert "must be a folder of faces" in nowhere.stderr
    stoker.train.save_checkpoint(tmp_path / "other.pt", {"model": {}})
    done = call(*words, "--stage", "predict", "--pretrained", "other.pt", cwd=tmp_path)
    assert "no checkpoint of this recipe" in done.stderr


def test_packing_by_command(faces: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(faces, raw)
    words = ("pack", "--recipe", "face-parsing", raw, "f.stoker", "--set", "images.size=32", "--json")
    judged = call(*words, "--validate-only", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    assert not (tmp_path / "f.stoker").exists()
    packed = json.loads(call(*words, cwd=tmp_path).stdout)
    assert packed["num_samples"] == 24
    assert packed["counts"] == json.loads(judged.stdout)["counts"]
    assert packed["counts"]["for test"] == 4
    assert stoker.open(tmp_path / "f.stoker").verify().ok
    next((raw / "train/masks").iterdir()).unlink()
    again = call(*words, cwd=tmp_path)
    assert again.returncode == 1
    assert json.loads(again.stdout)["num_samples"] == 23
