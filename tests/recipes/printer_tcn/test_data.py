import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import stoker
from stoker.errors import SourceError
from stoker.recipes._windows import window_loader
from stoker.recipes.printer_tcn import COLUMNS, FEATURES, TARGETS, Scaler
from stoker.recipes.printer_tcn._data import Layers, deal, normalize, open_layers
from stoker.recipes.printer_tcn._layout import find_layers, read_layer
from stoker.recipes.printer_tcn._prepare import prepare
from stoker.recipes.printer_tcn._scaler import fit_scaler
from stoker.recipes.printer_tcn._settings import PrinterSettings, SplitSettings, WindowSettings

QUIET: dict[str, Any] = {"progress": False}
WINDOWS = WindowSettings(length=60, horizon=20, stride=10)


@pytest.fixture
def layers(packed: Path) -> Layers:
    return open_layers(packed, SplitSettings())


def standardised(layers: Layers, scaler: Scaler, path: Path) -> Layers:
    normalize(layers, scaler, path)
    return Layers(stoker.open(path), layers.splits, layers.rate)


def test_the_scaler_is_that_of_the_training_layers(layers: Layers, parts: Path) -> None:
    scaler = layers.scaler()
    training = [each for each in find_layers(parts)[0] if each.part in {"3DBenchy", "Nautilus_Gears_Plate"}]
    rows = np.concatenate([read_layer(each)[0] for each in training]).astype(np.float64)
    whole = StandardScaler().fit(rows[:, : len(FEATURES)])
    of_features = scaler.of(FEATURES)
    np.testing.assert_allclose(of_features.mean, whole.mean_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(of_features.scale, whole.scale_, rtol=1e-6)
    known = StandardScaler().fit(rows[rows[:, -1] == 1][:, [COLUMNS.index(name) for name in TARGETS]])
    np.testing.assert_allclose(scaler.of(TARGETS).mean, known.mean_, rtol=1e-9)
    np.testing.assert_allclose(scaler.of(TARGETS).scale, known.scale_, rtol=1e-6)
    assert scaler.of(["known", "vz_ref"]) == Scaler((0.0, 0.0), (1.0, 1.0))


def test_scaling_can_be_undone(layers: Layers) -> None:
    scaler, series = layers.scaler(), layers.series(4)
    scaled = scaler.transform(series)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaler.inverse(scaled), series, rtol=1e-5, atol=1e-4)


def test_windows_are_rows_of_layers_that_were_standardised_once(
    layers: Layers, parts: Path, tmp_path: Path
) -> None:
    scaler = layers.scaler()
    view = standardised(layers, scaler, tmp_path / "n.stoker").windows("test", WINDOWS)
    number = len(view) - 1
    with view:
        key, (_, start) = view.session_key(view.session(number)[0]), view.session(number)
        window = view[number]["series"]
    layer = next(each for each in find_layers(parts)[0] if each.key == key)
    assert layer.part == "simple_boat5"
    rows = read_layer(layer)[0]
    np.testing.assert_array_equal(window, scaler.transform(rows)[start : start + 80])
    num_windows = sum(
        (len(read_layer(each)[0]) - 80) // 10 + 1 for each in find_layers(parts)[0] if each.part == layer.part
    )
    assert len(view) == num_windows


def test_standardising_again_writes_nothing_unless_the_scaler_changed(layers: Layers, tmp_path: Path) -> None:
    path, scaler = tmp_path / "n.stoker", layers.scaler()
    first = standardised(layers, scaler, path).store.content_digest
    files = {each: each.stat().st_mtime_ns for each in path.rglob("*.h5")}
    assert standardised(layers, scaler, path).store.content_digest == first
    assert {each: each.stat().st_mtime_ns for each in path.rglob("*.h5")} == files
    other = Scaler(scaler.mean, tuple(2 * each for each in scaler.scale))
    halved = standardised(layers, other, path).store
    assert halved.content_digest != first
    np.testing.assert_array_equal(halved[0]["series"], other.transform(layers.series(0)))


def test_only_training_windows_are_jittered(layers: Layers, tmp_path: Path) -> None:
    data = standardised(layers, layers.scaler(), tmp_path / "n.stoker")
    settings = PrinterSettings(**QUIET, windows=WindowSettings(length=100, horizon=20, stride=40))
    for train in (True, False):
        view = data.windows("train", settings.windows, train=train)
        with view, window_loader(view, settings, device="cpu") as loader:
            first, second = ([batch["series"].clone() for batch in loader] for _ in range(2))
        assert all((a == b).all() for a, b in zip(first, second, strict=True)) is not train


def test_no_part_is_in_two_splits() -> None:
    parts = ["b", "a", "c", "d", "b", "a"]
    assert deal(parts, np.arange(6), SplitSettings()) == ("train", "train", "val", "test", "train", "train")
    named = deal(parts, np.arange(6), SplitSettings(val=("b",), test=("a",)))
    assert named == ("val", "test", "train", "train", "val", "test")
    with pytest.raises(SourceError, match="no part 'x'; there are a, b, c, d"):
        deal(parts, np.arange(6), SplitSettings(val=("x",)))


def test_a_single_part_can_be_split_by_its_layers() -> None:
    numbers = np.arange(20)[::-1]
    found = deal(["a"] * 20, numbers, SplitSettings(by="layer"))
    assert found == ("test",) * 3 + ("val",) * 3 + ("train",) * 14
    with pytest.raises(SourceError, match=r"splits\.by to layer"):
        Layers(None, ("train", "train"), 100.0).members("val")  # type: ignore[arg-type]


def test_first_layers_alone_cannot_be_learned_from(layers: Layers) -> None:
    with pytest.raises(SourceError, match="above the first"):
        fit_scaler([layers.series(0)])


def test_another_store_is_refused(tmp_path: Path) -> None:
    stoker.pack([{"x": 1.0}], tmp_path / "other.stoker", workers=0, progress=False)
    with pytest.raises(SourceError, match="no field layer, part, rate, series"):
        open_layers(tmp_path / "other.stoker", SplitSettings())


def test_packing_is_incremental_and_bad_layers_are_listed(parts: Path, tmp_path: Path) -> None:
    folder, store, settings = tmp_path / "raw", tmp_path / "a.stoker", PrinterSettings(**QUIET)
    shutil.copytree(parts, folder)
    judged = prepare(folder, store, settings, validate_only=True, workers=0)
    assert not store.exists()
    whole = prepare(folder, store, settings, workers=0)
    assert (judged.counts, judged.num_samples, whole.problems) == (whole.counts, 12, ())
    assert whole.counts["parts"]["bearing5"] == 3
    shards = set(store.rglob("*.h5"))
    assert prepare(folder, store, settings, workers=0).counts == whole.counts
    assert set(store.rglob("*.h5")) == shards
    prepare(folder, store, settings, workers=0, force=True)
    bad = sorted(folder.glob("*/*.mat"))[:2]
    bad[0].write_bytes(b"not MATLAB")
    with h5py.File(bad[1], "r+") as file:
        del file["simulation_data/error_y"]
    judged = prepare(folder, store, settings, validate_only=True, workers=0)
    done = prepare(folder, store, settings, workers=0)
    assert judged.problems == done.problems
    assert "not a readable mat file" in done.problems[0]
    assert "no field 'error_y'" in done.problems[1]
    assert done.num_samples == 10
    for path in sorted(folder.glob("*/*.mat"))[2:]:
        path.unlink()
    with pytest.raises(SourceError, match="none of the 2 layers"):
        prepare(folder, tmp_path / "b.stoker", settings, validate_only=True, workers=0)
    with pytest.raises(SourceError, match="none of the 2 samples could be packed"):
        prepare(folder, tmp_path / "b.stoker", settings, workers=0)


def test_layers_of_two_rates_are_refused(parts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    shutil.copytree(parts, folder)
    with h5py.File(min(folder.glob("*/*.mat")), "r+") as file:
        file["simulation_data/time"][...] /= 2
    prepare(folder, tmp_path / "a.stoker", PrinterSettings(**QUIET), workers=0)
    with pytest.raises(SourceError, match="one sample rate, got 100, 200 Hz"):
        open_layers(tmp_path / "a.stoker", SplitSettings())
