import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import stoker
from stoker.errors import SourceError
from stoker.recipes._windows import window_loader
from stoker.recipes.emg_pose._augment import make_augment
from stoker.recipes.emg_pose._data import Collection, fit_statistics, open_collection
from stoker.recipes.emg_pose._layout import read_sessions
from stoker.recipes.emg_pose._prepare import prepare
from stoker.recipes.emg_pose._settings import AugmentSettings, EmgSettings, WindowSettings

QUIET: dict[str, Any] = {"progress": False}


def table_of(path: Path) -> NDArray[np.void]:
    with h5py.File(path) as file:
        table: NDArray[np.void] = file["emg2pose/timeseries"][:]
    return table


@pytest.fixture(scope="module")
def packed(sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("packed") / "emg.stoker"
    prepare(sessions, store, EmgSettings(**QUIET), workers=0)
    return store


@pytest.fixture(params=["files", "store"])
def collection(request: pytest.FixtureRequest, sessions: Path, packed: Path) -> Collection:
    return open_collection(sessions if request.param == "files" else packed)


def test_windows_are_the_rows_of_the_files(collection: Collection, sessions: Path) -> None:
    settings = WindowSettings(length=300, padding=(40, 20), skip_failed=False)
    view, members = collection.windows("test", settings)
    with view:
        session, start = view.session(len(view) - 1)
        window = view[len(view) - 1]
    rows = table_of(sessions / f"{members[session].path.stem}.hdf5")[start - 40 : start + 320]
    np.testing.assert_array_equal(window["emg"], rows["emg"].T)
    np.testing.assert_array_equal(window["joint_angles"], rows["joint_angles"].T)
    assert {each.user for each in members} == {"u003"}


def test_windows_never_touch_failed_inverse_kinematics_unless_asked(collection: Collection) -> None:
    def num_failed(view: stoker.loader.Windows) -> int:
        with view:
            return sum(int((view[i]["joint_angles"] == 0).all(0).sum()) for i in range(len(view)))

    settings = WindowSettings(length=200)
    assert num_failed(collection.windows("all", settings)[0]) == 0
    assert num_failed(collection.windows("all", settings, skip_failed=False)[0]) > 0


def test_no_user_is_in_two_splits(collection: Collection) -> None:
    users = [
        {each.user for each in collection.windows(split, WindowSettings())[1]}
        for split in ("train", "val", "test")
    ]
    assert not users[0] & users[1]
    assert not users[0] & users[2]
    assert not users[1] & users[2]


def test_only_training_windows_are_jittered(collection: Collection) -> None:
    settings = EmgSettings(**QUIET, windows=WindowSettings(length=200, stride=100))
    for train in (True, False):
        view, _ = collection.windows("train", settings.windows, train=train)
        with view, window_loader(view, settings, device="cpu") as loader:
            first, second = ([batch["emg"].clone() for batch in loader] for _ in range(2))
        assert all((a == b).all() for a, b in zip(first, second, strict=True)) is not train


def test_statistics_are_those_of_known_steps_of_training_sessions(
    collection: Collection, sessions: Path
) -> None:
    tables = [table_of(each.path) for each in read_sessions(sessions)[0] if each.split == "train"]
    whole = np.concatenate(tables)
    known = whole[(whole["joint_angles"] != 0).any(1)]
    exact = fit_statistics(
        collection, EmgSettings.model_validate({"normalize": {"method": "exact"}, "windows": {"length": 1}})
    )
    emg = known["emg"].astype(np.float64)
    np.testing.assert_allclose(exact.emg_mean, emg.mean(0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(exact.emg_std, emg.std(0), rtol=1e-6)
    np.testing.assert_allclose(exact.angle_mean, known["joint_angles"].mean(0, np.float64), rtol=1e-5)
    sampled = fit_statistics(
        collection,
        EmgSettings.model_validate({"normalize": {"max_samples": 2000}, "windows": {"length": 100}}),
    )
    assert sampled != exact
    np.testing.assert_allclose(sampled.emg_std, exact.emg_std, rtol=0.2)
    plain = fit_statistics(collection, EmgSettings.model_validate({"normalize": {"method": "none"}}))
    assert plain.emg_std == (1.0,) * 16
    assert any(plain.angle_mean)


def test_a_split_without_sessions_is_named(collection: Collection) -> None:
    only = Collection(tuple(each for each in collection.sessions if each.split == "train"))
    with pytest.raises(SourceError, match="a session for 'val', and there are 4 for train, 0 for val"):
        only.windows("val", WindowSettings())


def test_another_store_is_refused(tmp_path: Path) -> None:
    stoker.pack([{"x": 1.0}], tmp_path / "other.stoker", workers=0, progress=False)
    with pytest.raises(SourceError, match="no field 'emg'"):
        open_collection(tmp_path / "other.stoker")


def test_bad_sessions_are_left_out_and_listed(sessions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    shutil.copytree(sessions, folder)
    names = sorted(path.name for path in folder.glob("*.hdf5"))
    (folder / names[0]).write_bytes(b"no HDF5 at all")
    with h5py.File(folder / names[1], "r+") as file:
        rows = file["emg2pose/timeseries"][:]
        rows["emg"][7, 3] = np.nan
        file["emg2pose/timeseries"][:] = rows
    settings = EmgSettings(**QUIET)
    judged = prepare(folder, tmp_path / "a.stoker", settings, validate_only=True, workers=0)
    assert not (tmp_path / "a.stoker").exists()
    done = prepare(folder, tmp_path / "a.stoker", settings, workers=0)
    assert judged.problems == done.problems
    assert judged.counts == done.counts
    bad = [name.removesuffix(".hdf5") for name in names[:2]]
    assert f"sample {bad[0]!r}: no session in the emg2pose layout" in done.problems[0]
    assert f"sample {bad[1]!r}: emg is no number at 1 of 4000 steps" in done.problems[1]
    assert done.num_samples == 6
    assert done.counts["users"] == 3
    for name in names[1:]:
        (folder / name).unlink()
    with pytest.raises(SourceError, match="none of the 1 samples could be packed"):
        prepare(folder, tmp_path / "b.stoker", settings, workers=0)


def test_augmentation_turns_the_band_and_keeps_the_angles(sessions: Path) -> None:
    settings = EmgSettings.model_validate({**QUIET, "augment": {"channel_dropout": None, "scale": None}})
    view, _ = open_collection(sessions).windows("val", settings.windows)
    augment = make_augment(settings.augment, seed=0)
    with (
        view,
        window_loader(view, settings, device="cpu") as plain,
        window_loader(view, settings, device="cpu", augment=augment) as turned,
    ):
        before, after = next(iter(plain)), next(iter(turned))
        turns = {
            shift
            for x, y in zip(before["emg"], after["emg"], strict=True)
            for shift in (-1, 0, 1)
            if (x.roll(shift, 0) == y).all()
        }
        assert len(turns) > 1
        assert (before["joint_angles"] == after["joint_angles"]).all()


def test_every_part_of_the_augmentation_can_be_left_out_and_put_in() -> None:
    nothing = AugmentSettings(rotate=None, channel_dropout=None, scale=None)
    assert make_augment(nothing, seed=0) is None
    everything = make_augment(AugmentSettings(noise_snr_db=(10, 20), time_mask=50), seed=0)
    assert everything is not None
    assert len(everything.to_config()["transforms"]) == 5
