import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.recipes.printer_tcn import COLUMNS, FEATURES, TARGETS, write_parts
from stoker.recipes.printer_tcn._layout import Layer, find_layers, part_of, read_layer


def one_layer(parts: Path, target: Path) -> Layer:
    """A copy of a layer that may be damaged."""
    source = find_layers(parts)[0][1]
    target.mkdir(parents=True, exist_ok=True)
    path = target / source.path.name
    shutil.copy(source.path, path)
    return Layer(path, source.part, source.number)


@pytest.mark.parametrize(
    ("folder", "part"),
    [
        ("data_simulation_3DBenchy_48", "3DBenchy"),
        ("data_simulation_bearing5_75", "bearing5"),
        ("data_simulation_Nautilus_Gears_Plate_26", "Nautilus_Gears_Plate"),
        ("data_simulation_simple_boat5_layers_1-74", "simple_boat5"),
        ("data_simulation_bearing5_layers_1_75", "bearing5"),
        ("my_print", "my_print"),
    ],
)
def test_a_folder_names_its_part(folder: str, part: str) -> None:
    assert part_of(folder) == part


def test_layers_are_in_order_whatever_names_the_data(parts: Path, tmp_path: Path) -> None:
    found, problems = find_layers(parts)
    assert problems == ()
    assert [(each.part, each.number) for each in found][:4] == [("3DBenchy", n) for n in (1, 2, 3)] + [
        ("Nautilus_Gears_Plate", 1)
    ]
    assert find_layers(parts / "data_simulation_*")[0] == found
    assert find_layers(parts / "data_simulation_bearing5_3")[0] == tuple(
        each for each in found if each.part == "bearing5"
    )
    for number in (2, 10, 1):
        (tmp_path / f"layer{number}_ender3v2.mat").touch()
    assert [each.number for each in find_layers(tmp_path)[0]] == [1, 2, 10]


def test_a_layer_that_is_there_twice_or_has_no_number_is_told(parts: Path, tmp_path: Path) -> None:
    layer = one_layer(parts, tmp_path)
    layer.path.with_suffix(".csv").touch()
    (tmp_path / "layers.mat").touch()
    found, problems = find_layers(tmp_path)
    assert [each.path.suffix for each in found] == [".mat"]
    assert "layers.mat has no number" in problems[1]
    assert "is there twice" in problems[0]


def test_wrong_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder of layers or a pattern"):
        find_layers(tmp_path / "data_simulation_*")
    (tmp_path / "data_simulation_a_1").mkdir()
    with pytest.raises(UsageError, match="did you mean 'data_simulation_a_1'"):
        find_layers(tmp_path / "data_simulation_a_2")
    with pytest.raises(SourceError, match=r"layer01_ender3v2\.mat"):
        find_layers(tmp_path)


def test_columns_are_those_of_the_file(parts: Path) -> None:
    layer = find_layers(parts)[0][1]
    series, rate = read_layer(layer)
    with h5py.File(layer.path) as file:
        raw = file["simulation_data"]
        assert raw["x_ref"].shape == (1, len(series))
        for name in (*FEATURES, *TARGETS):
            np.testing.assert_array_equal(series[:, COLUMNS.index(name)], raw[name][0].astype(np.float32))
        extruding = raw["is_extruding"][0] == 1
    assert rate == 100.0
    np.testing.assert_array_equal(series[:, -1], extruding)
    assert 0.5 < extruding.mean() < 1
    assert read_layer(find_layers(parts)[0][0])[0][:, -1].max() == 0  # nothing lies below the first layer


def test_files_of_every_kind_give_the_same(parts: Path, tmp_path: Path) -> None:
    layer = find_layers(parts)[0][1]
    series, _ = read_layer(layer)
    with h5py.File(layer.path) as file:
        fields = {
            name: value[0]
            for name, value in file["simulation_data"].items()
            if isinstance(value, h5py.Dataset) and value.dtype.kind != "O"
        }
    old = tmp_path / "layer02_old.mat"
    scipy.io.savemat(old, {"simulation_data": {name: value[:, None] for name, value in fields.items()}})
    np.testing.assert_array_equal(read_layer(Layer(old, "a", 2))[0], series)
    options = {"num_parts": 1, "layers_per_part": 2, "points_per_layer": 300, "seed": 5}
    write_parts(tmp_path / "mat", **options)  # type: ignore[arg-type]
    write_parts(tmp_path / "csv", **options, file_format="csv")  # type: ignore[arg-type]
    for left, right in zip(find_layers(tmp_path / "mat")[0], find_layers(tmp_path / "csv")[0], strict=True):
        assert (left.path.suffix, right.path.suffix) == (".mat", ".csv")
        np.testing.assert_array_equal(read_layer(left)[0], read_layer(right)[0])


def test_what_a_layer_lacks_is_named(parts: Path, tmp_path: Path) -> None:
    def refused(name: str) -> str:
        with pytest.raises(BadSampleError) as caught:
            read_layer(damaged)
        (tmp_path / name).mkdir(exist_ok=True)
        return str(caught.value)

    damaged = one_layer(parts, tmp_path / "a")
    with h5py.File(damaged.path, "r+") as file:
        file.move("simulation_data/porosity", "simulation_data/porosities")
    assert "no field 'porosity'; did you mean 'porosities'?" in refused("a")
    damaged = one_layer(parts, tmp_path / "b")
    with h5py.File(damaged.path, "r+") as file:
        file["simulation_data/T_nozzle"][0, 7] = np.nan
    assert "T_nozzle is no number; 1 of " in refused("b")
    damaged = one_layer(parts, tmp_path / "c")
    with h5py.File(damaged.path, "r+") as file:
        file["simulation_data/time"][0, 7] += 0.004
    assert "time must go on in equal steps" in refused("c")
    damaged.path.write_bytes(b"no MATLAB file at all")
    assert "not a readable mat file" in refused("c")
    damaged = Layer(tmp_path / "layer03.csv", "a", 3)
    damaged.path.write_text("a,b\n1,2\n")
    assert "none of the fields' names" in refused("c")


def test_without_them_extrusion_and_layer_come_from_the_name(parts: Path, tmp_path: Path) -> None:
    layer = one_layer(parts, tmp_path)
    with h5py.File(layer.path, "r+") as file:
        del file["simulation_data/is_extruding"], file["simulation_data/layer_num"]
    series, _ = read_layer(layer)
    assert set(series[:, -1]) == {1.0}
    assert set(series[:, COLUMNS.index("layer_num")]) == {2.0}
