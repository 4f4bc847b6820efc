from pathlib import Path

import pytest

from stoker.recipes.printer_tcn import PrinterSettings, write_parts
from stoker.recipes.printer_tcn._prepare import prepare


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four parts of three layers, about four seconds each: two parts to learn from, one each to judge by."""
    folder = tmp_path_factory.mktemp("printer")
    write_parts(folder, num_parts=4, layers_per_part=3, points_per_layer=400, seed=3)
    return folder


@pytest.fixture(scope="session")
def packed(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a store."""
    store = tmp_path_factory.mktemp("packed") / "layers.stoker"
    prepare(parts, store, PrinterSettings(progress=False), workers=0)
    return store
