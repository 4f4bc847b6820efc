import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch

import stoker
from stoker.errors import SourceError, StoreMismatchError, UsageError
from stoker.recipes.cardiac_ct import CardiacSettings
from stoker.recipes.cardiac_ct._augment import make_augment
from stoker.recipes.cardiac_ct._data import Finish, batches, open_collection
from stoker.recipes.cardiac_ct._prepare import prepare
from stoker.recipes.cardiac_ct._settings import AugmentSettings, VolumeSettings

ALL = np.arange(24)


def settings_of(tiny: dict[str, Any], **more: Any) -> CardiacSettings:
    return CardiacSettings.model_validate({**tiny, **more})


def all_batches(data: Path, settings: CardiacSettings, **options: Any) -> list[dict[str, Any]]:
    collection = open_collection(data, settings)
    with batches(collection, np.arange(len(collection.studies)), settings, device="cpu", **options) as loader:
        return [{name: value.clone() for name, value in batch.items()} for batch in loader]


@pytest.fixture
def folder(studies: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(studies, tmp_path / "raw")
    return tmp_path / "raw"


def rewrite(folder: Path, old: str, new: str) -> None:
    path = folder / "studies.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_store_and_raw_files_give_the_same_batches(
    studies: Path, packed: Path, tiny: dict[str, Any]
) -> None:
    from_store = all_batches(studies, settings_of(tiny, store=packed), shuffle=True)
    from_files = all_batches(studies, settings_of(tiny, packed="never"), shuffle=True)
    cached = {**tiny, "loading": {"num_workers": 0, "cache_bytes": 8 << 20}}
    from_cache = all_batches(studies, settings_of(cached, packed="never"), shuffle=True)
    assert len(from_store) == 6
    for first, *others in zip(from_store, from_files, from_cache, strict=True):
        for other in others:
            assert first.keys() == other.keys() == {"x", "targets", "index"}
            assert all(torch.equal(first[name].nan_to_num(), other[name].nan_to_num()) for name in first)
    x = torch.cat([batch["x"] for batch in from_store])
    assert x.shape == (24, 1, 20, 20, 16)
    assert x.dtype == torch.float32
    assert -1e-6 <= x.min() <= 0
    assert 0.6 < x.max() <= 1


def test_where_volumes_come_from_is_said(studies: Path, packed: Path, tiny: dict[str, Any]) -> None:
    def line(**more: Any) -> str:
        return open_collection(studies, settings_of(tiny, **more)).notes[0]

    assert line(store=packed) == f"volumes are read from the packed store {packed}"
    assert "raw files in every epoch: there is no store at nowhere" in line(store="nowhere")
    assert "raw files in every epoch: as packed=never says" in line(store=packed, packed="never")


def test_each_volume_has_the_labels_of_its_study(studies: Path, packed: Path, tiny: dict[str, Any]) -> None:
    settings = settings_of(tiny, store=packed)
    rows = [line.split(",") for line in (studies / "studies.csv").read_text().splitlines()[1:]]
    collection = open_collection(studies, settings)
    assert [each.key for each in collection.studies] == [row[0] for row in rows]
    for batch in all_batches(studies, settings, shuffle=True):
        for number, targets in zip(batch["index"].tolist(), batch["targets"], strict=True):
            lvef, stenosis = rows[number][4], rows[number][5]
            assert targets.isnan()[0] if not lvef else targets[0] == pytest.approx(float(lvef))
            assert targets[1] == float(stenosis)


def test_new_labels_need_no_new_pack(folder: Path, tiny: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(tiny, store=tmp_path / "ct.stoker")
    prepare(folder, settings.store_path, settings, workers=0)
    before = stoker.open(settings.store_path).manifest
    rows = (folder / "studies.csv").read_text().splitlines()
    fields = rows[3].split(",")
    fields[4:6] = ["12.5", "1"]
    rewrite(folder, rows[3], ",".join(fields))
    collection = open_collection(folder, settings)
    assert collection.labels.values[2].tolist() == [12.5, 1]
    assert collection.notes == (f"volumes are read from the packed store {settings.store_path}",)
    prepare(folder, settings.store_path, settings, workers=0)
    assert stoker.open(settings.store_path).manifest == before
    table = tmp_path / "echo.csv"
    table.write_text(f"basename,lvef,AS_maybe\n{fields[0]},77,\nunknown,1,1\n")
    own = settings_of(tiny, store=settings.store_path, labels={"csv": table})
    labelled = open_collection(folder, own)
    assert labelled.labels.values[2, 0] == 77
    assert labelled.labelled.sum() == 1
    found = prepare(folder, settings.store_path, own, workers=0)
    assert found.problems == ("unknown of echo.csv is not in studies.csv",)
    assert found.counts["studies without lvef"] == 23


def test_a_store_alone_needs_the_table(
    studies: Path, packed: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"labels are not in it: name their table with --set studies.csv"):
        open_collection(packed, settings_of(tiny))
    lines = (studies / "studies.csv").read_text().splitlines()
    table = tmp_path / "part.csv"
    table.write_text("\n".join(lines[:-1]) + "\n")
    collection = open_collection(packed, settings_of(tiny, studies={"csv": table}))
    assert len(collection.studies) == 23
    assert "has no row with a patient_id of its own in part.csv" in collection.notes[1]
    alone = all_batches(packed, settings_of(tiny, studies={"csv": table}))
    whole = all_batches(studies, settings_of(tiny, store=packed))
    assert torch.equal(
        torch.cat([each["x"] for each in alone]), torch.cat([each["x"] for each in whole])[:23]
    )


def test_packing_again_packs_what_changed_and_training_notices(
    folder: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    settings = settings_of(tiny, store=tmp_path / "ct.stoker")

    def pack(**options: Any) -> dict[str, int]:
        prepare(folder, settings.store_path, settings, workers=0, **options)
        report: dict[str, int] = json.loads((settings.store_path / "statistics.json").read_text())
        return report

    assert pack()["num_packed"] == 24
    assert pack()["num_packed"] == 0
    first, second = open_collection(folder, settings).studies[:2]
    image = nibabel.load(first.path)
    nibabel.save(nibabel.Nifti1Image(image.get_fdata().astype(np.int16) // 2, image.affine), first.path)
    os.utime(first.path, ns=(1, 1))
    stale = open_collection(folder, settings)
    assert len(stale.studies) == 23
    assert "(1 that are not in it, or changed since, are left out: stoker pack" in stale.notes[0]
    assert pack()["num_packed"] == 1
    assert len(open_collection(folder, settings).studies) == 24
    assert pack(force=True)["num_packed"] == 24
    second.path.unlink()
    rewrite(folder, second.key, "gone")
    done = prepare(folder, settings.store_path, settings, workers=0)
    assert done.num_samples == len(stoker.open(settings.store_path)) == 23
    assert done.problems == (f"gone of studies.csv has no file {second.path.parent.name}/gone.nii.gz",)


def test_a_store_of_other_settings_is_refused_by_what_differs(
    studies: Path, packed: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    other = settings_of(tiny, store=packed, volume={**tiny["volume"], "high": 400})
    for data, settings in (
        (studies, other),
        (packed, other.model_copy(update={"studies": other.studies.model_copy(update={"csv": "x"})})),
    ):
        with pytest.raises(StoreMismatchError, match=r"another volume.high 1000.0 \(now 400.0\)"):
            open_collection(data, settings)
    stoker.pack([{"x": 1.0}], tmp_path / "other.stoker", workers=0, progress=False)
    with pytest.raises(SourceError, match="no field 'preparation'"):
        open_collection(studies, settings_of(tiny, store=tmp_path / "other.stoker"))


def test_bad_volumes_are_left_out_and_listed(folder: Path, tiny: dict[str, Any], tmp_path: Path) -> None:
    files = sorted(folder.rglob("*.nii.gz"))
    names = [path.name.removesuffix(".nii.gz") for path in files]
    files[0].write_bytes(b"no NIfTI at all")
    whole = gzip.decompress(files[1].read_bytes())
    files[1].write_bytes(gzip.compress(whole)[:-5])
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4, 2), np.int16), np.eye(4)), files[2])
    settings = settings_of(tiny)
    judged = prepare(folder, tmp_path / "a.stoker", settings, validate_only=True, workers=0)
    assert not (tmp_path / "a.stoker").exists()
    done = prepare(folder, tmp_path / "a.stoker", settings, workers=0)
    assert judged == done
    assert done.num_samples == done.counts["studies"] == 21
    by_key = {name: next(line for line in done.problems if name in line) for name in names[:3]}
    assert "not a readable nii.gz volume" in by_key[names[0]]
    assert "not a readable nii.gz volume" in by_key[names[1]]
    assert "three axes, got the shape [4, 4, 4, 2]" in by_key[names[2]]
    for path in files[3:]:
        path.unlink()
    with pytest.raises(SourceError, match="none of the 3 samples could be packed"):
        prepare(folder, tmp_path / "b.stoker", settings, workers=0)
    for path in files[:3]:
        path.unlink()
    with pytest.raises(SourceError, match="24 studies has a volume"):
        prepare(folder, tmp_path / "b.stoker", settings, workers=0)
    with pytest.raises(SourceError, match="24 studies has a volume"):
        open_collection(folder, settings)


def test_a_missing_label_column_is_a_problem_for_packing_and_an_error_for_training(
    studies: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    settings = settings_of(tiny, labels={"regression": ["strain"]}, studies={"limit": 2})
    done = prepare(studies, tmp_path / "ct.stoker", settings, workers=0)
    assert done.num_samples == 2
    assert "must have the column 'strain'" in done.problems[0]
    with pytest.raises(SourceError, match="must have the column 'strain'"):
        open_collection(studies, settings)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_volumes_may_be_stored_as_fractions(
    studies: Path, packed: Path, tiny: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    volume = {**tiny["volume"], "dtype": dtype}
    settings = settings_of(tiny, volume=volume, studies={"limit": 4}, store=tmp_path / "ct.stoker")
    prepare(studies, settings.store_path, settings, workers=0)
    assert stoker.open(settings.store_path).fields["x"].dtype == dtype
    (found,) = all_batches(studies, settings)
    whole = all_batches(studies, settings_of(tiny, store=packed))[0]
    assert found["x"].dtype == torch.float32
    torch.testing.assert_close(found["x"], whole["x"], atol=3e-4, rtol=0)


def test_a_batch_that_is_kept_never_changes() -> None:
    finish = Finish(np.arange(8, dtype=np.float32).reshape(4, 2), VolumeSettings(), None)
    stored = [torch.full((2, 1, 128, 128, 65), value, dtype=torch.int16) for value in (-1000, 500)]
    first, second = (
        finish({"x": x}, index=index, epoch=0) for x, index in zip(stored, ([3, 0], [1, 1]), strict=True)
    )
    assert first["x"].unique().tolist() == pytest.approx([0], abs=1e-6)
    assert second["x"].unique().tolist() == pytest.approx([0.75])
    assert first["targets"].tolist() == [[6, 7], [0, 1]]
    place = first.pop("x").data_ptr()
    assert finish({"x": stored[0]}, index=[0, 1], epoch=0)["x"].data_ptr() == place  # used again


def test_augmentation_changes_volumes_and_leaves_labels(
    studies: Path, packed: Path, tiny: dict[str, Any]
) -> None:
    settings = settings_of(tiny, store=packed)
    augment = make_augment(settings.augment, settings.volume, seed=0)
    before, after = (all_batches(studies, settings, augment=each) for each in (None, augment))
    changed = [
        not torch.equal(first, second)
        for one, two in zip(before, after, strict=True)
        for first, second in zip(one["x"], two["x"], strict=True)
    ]
    assert sum(changed) > 15
    for one, two in zip(before, after, strict=True):
        assert torch.equal(one["targets"].nan_to_num(), two["targets"].nan_to_num())


def test_every_part_of_the_augmentation_can_be_left_out_and_put_in() -> None:
    nothing = AugmentSettings(
        rotate=None, translate=None, intensity_scale=None, intensity_shift=None, noise=None
    )
    assert make_augment(nothing, VolumeSettings(), seed=0) is None
    everything = AugmentSettings(scale=(0.9, 1.1), gamma=(0.8, 1.25), blur=1.0)
    pipeline = make_augment(everything, VolumeSettings(), seed=0)
    assert pipeline is not None
    assert [next(iter(each)) for each in pipeline.to_config()["transforms"]] == [
        f"volume.{name}"
        for name in ("Affine3D", "IntensityScale", "IntensityShift", "Gamma", "GaussianNoise", "GaussianBlur")
    ]
