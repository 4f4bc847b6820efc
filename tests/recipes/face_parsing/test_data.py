import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker.errors import SourceError, UsageError
from stoker.recipes.face_parsing import CLASSES, FaceSettings, draw_face
from stoker.recipes.face_parsing._data import choose_split, make_store, open_faces, select, split_faces
from stoker.recipes.face_parsing._prepare import prepare
from stoker.recipes.face_parsing._settings import ImageSettings, SyntheticSettings
from stoker.recipes.face_parsing._synthetic import make_synthetic


def settings(**more: Any) -> FaceSettings:
    return FaceSettings.model_validate({"progress": False, "images": {"size": 48}, **more})


@pytest.fixture(scope="module")
def store(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "faces.stoker"
    prepare(faces, path, settings(), workers=0)
    return path


def test_a_store_holds_bytes_at_the_size_of_training(store: Path, faces: Path) -> None:
    opened = stoker.open(store)
    assert len(opened) == 24
    assert opened.fields["image"].shape == (3, 48, 48)
    for i in (0, 23):
        folder, name = opened.key(i).split("/")
        raw = Image.open(faces / folder / "images" / f"{name}.jpg")
        small = np.array(raw.resize((48, 48), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        mask = Image.open(faces / folder / "masks" / f"{name}.png")
        np.testing.assert_array_equal(opened[i]["image"], small)
        np.testing.assert_array_equal(opened[i]["mask"], mask.resize((48, 48), Image.Resampling.NEAREST))
        assert [opened[i][edge] for edge in ("height", "width")] == [64, 64]


def test_packing_again_packs_what_changed(faces: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(faces, raw)
    first = prepare(raw, tmp_path / "a.stoker", settings(), workers=0)
    files = {path.name: path.stat().st_ino for path in (tmp_path / "a.stoker/shards").iterdir()}
    prepare(raw, tmp_path / "a.stoker", settings(), workers=0)
    assert files == {path.name: path.stat().st_ino for path in (tmp_path / "a.stoker/shards").iterdir()}
    before = stoker.open(tmp_path / "a.stoker")
    changed = next((raw / "train/masks").iterdir())
    Image.fromarray(np.full((64, 64), 2, np.uint8)).save(changed)
    os.utime(changed, ns=(1, 1))
    after = prepare(raw, tmp_path / "a.stoker", settings(), workers=0)
    assert after.num_samples == first.num_samples == 24
    now = stoker.open(tmp_path / "a.stoker")
    different = [i for i in range(24) if before.fingerprint(i) != now.fingerprint(i)]
    assert [now.key(i) for i in different] == [f"train/{changed.stem}"]
    assert set(np.unique(now[different[0]]["mask"])) == {2}
    forced = prepare(raw, tmp_path / "a.stoker", settings(images={"size": 32}), force=True, workers=0)
    assert forced.counts["pixels an edge"] == 32
    assert stoker.open(tmp_path / "a.stoker").fields["mask"].shape == (32, 32)


def test_bad_files_are_left_out_and_listed_and_validating_says_the_same(faces: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(faces, raw)
    images, masks = (sorted((raw / "train" / kind).iterdir()) for kind in ("images", "masks"))
    images[0].write_bytes(images[0].read_bytes()[:200])
    Image.fromarray(np.full((64, 64), 40, np.uint8)).save(masks[1])
    masks[2].unlink()
    judged = prepare(raw, tmp_path / "a.stoker", settings(), validate_only=True, workers=0)
    assert not (tmp_path / "a.stoker").exists()
    done = prepare(raw, tmp_path / "a.stoker", settings(), workers=0)
    assert judged.problems == done.problems
    assert judged.counts == done.counts
    assert "has no mask" in done.problems[0]
    assert "cannot be read" in done.problems[1]
    assert "4096 pixels have others, such as 40" in done.problems[2]
    assert done.num_samples == 21
    for path in (raw / "train/images").iterdir():
        path.write_bytes(b"nothing")
    shutil.rmtree(raw / "test")
    for validate_only in (True, False):
        with pytest.raises(SourceError, match="none of the"):
            prepare(raw, tmp_path / "b.stoker", settings(), validate_only=validate_only, workers=0)


def test_the_split_is_a_function_of_the_name(store: Path) -> None:
    opened = stoker.open(store)
    ask = ImageSettings(val_fraction=0.3)
    parts = split_faces(opened, ask)
    assert len(parts["train"]) + len(parts["val"]) == 20
    assert len(parts["test"]) == 4
    assert not set(parts["train"]) & set(parts["val"])
    names = {opened.key(int(i)) for i in parts["val"]}
    fewer = opened.select(np.arange(0, 24, 2))
    again = {fewer.key(int(i)) for i in split_faces(fewer, ask)["val"]}
    assert again == names & {fewer.key(i) for i in range(len(fewer))}
    other = split_faces(opened, ImageSettings(val_fraction=0.3, split_seed=1))
    assert other["val"].tolist() != parts["val"].tolist()
    few = opened.select(parts["train"][:3])
    assert len(split_faces(few, ImageSettings(val_fraction=1e-9))["val"]) == 1


def test_a_folder_for_validation_goes_before_the_fraction(faces: Path, tmp_path: Path) -> None:
    shutil.copytree(faces / "train", tmp_path / "raw/train")
    shutil.copytree(faces / "test", tmp_path / "raw/val")
    prepare(tmp_path / "raw", tmp_path / "a.stoker", settings(), workers=0)
    parts = split_faces(stoker.open(tmp_path / "a.stoker"), ImageSettings())
    assert {name: len(numbers) for name, numbers in parts.items()} == {
        "all": 24,
        "train": 20,
        "val": 4,
        "test": 0,
    }


def test_what_is_evaluated_has_masks_and_what_is_predicted_may_have_none(faces: Path, tmp_path: Path) -> None:
    shutil.copytree(faces, tmp_path / "raw")
    for with_masks, expected in ((True, ("test", "test")), (False, ("val", "test"))):
        if not with_masks:
            shutil.rmtree(tmp_path / "raw/test/masks")
        ask = settings(data=tmp_path / "raw", out=tmp_path / "out")
        make_store(ask)
        opened = open_faces(ask)
        assert (
            choose_split(opened, ask, with_masks=True),
            choose_split(opened, ask, with_masks=False),
        ) == expected
    with pytest.raises(SourceError, match="faces for 'val', and there are 0 for train"):
        select(opened.select(split_faces(opened, ask.images)["test"]), ask, "val")


def test_another_store_and_another_size_are_refused(store: Path, tmp_path: Path) -> None:
    stoker.pack([{"x": 1.0}], tmp_path / "other.stoker", workers=0, progress=False)
    with pytest.raises(SourceError, match="no field 'image'"):
        open_faces(settings(data=tmp_path / "other.stoker"))
    with pytest.raises(UsageError, match="images of 48 pixels an edge, and 64 are asked for"):
        open_faces(settings(data=store, images={"size": 64}))


def test_drawn_faces_have_all_classes_and_are_the_same_again(tmp_path: Path) -> None:
    masks = [draw_face(64, np.random.default_rng([0, i]))[1] for i in range(40)]
    assert set(np.unique(masks)) == set(range(len(CLASSES)))
    for left, right in ((4, 5), (6, 7), (8, 9)):
        both = [mask for mask in masks if (mask == left).any() and (mask == right).any()]
        assert len(both) > 10
        assert all(np.argwhere(m == left)[:, 1].mean() < np.argwhere(m == right)[:, 1].mean() for m in both)
    ask = SyntheticSettings(num_train=2, num_test=1, size=32)
    make_synthetic(tmp_path / "a", ask, seed=1)
    make_synthetic(tmp_path / "b", ask, seed=1)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 7
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    made = (tmp_path / "a" / files[1]).stat().st_mtime_ns
    make_synthetic(tmp_path / "a", ask, seed=1)
    assert (tmp_path / "a" / files[1]).stat().st_mtime_ns == made
    make_synthetic(tmp_path / "a", SyntheticSettings(num_train=3, num_test=0, size=32), seed=1)
    assert len(list((tmp_path / "a").rglob("*.jpg"))) == 3
    assert json.loads((tmp_path / "a/synthetic.json").read_text())["num_train"] == 3
    (tmp_path / "c").mkdir()
    (tmp_path / "c/mine.txt").touch()
    with pytest.raises(UsageError, match="something else"):
        make_synthetic(tmp_path / "c", ask, seed=1)
