from pathlib import Path
from typing import Any

import pytest

from stoker.recipes.cardiac_ct import CardiacSettings, write_studies
from stoker.recipes.cardiac_ct._prepare import prepare

_TINY = {
    "progress": False,
    "volume": {"spacing": [16, 16, 20], "size": [20, 20, 16]},
    "model": {"widths": [4, 8], "hidden": 8, "dropout": 0},
    "loading": {"num_workers": 0},
    "training": {"epochs": 2, "batch_size": 4, "lr": 0.01, "device": "cpu"},
}


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Settings that make everything small."""
    return _TINY


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 studies of 16 patients, in six orientations; one has no ejection fraction."""
    folder = tmp_path_factory.mktemp("studies")
    assert write_studies(folder, num_patients=16, stenosis_share=0.5, seed=3) == 24
    return folder


@pytest.fixture(scope="session")
def packed(studies: Path, tiny: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, packed."""
    store = tmp_path_factory.mktemp("packed") / "ct.stoker"
    prepare(studies, store, CardiacSettings.model_validate(tiny), workers=0)
    return store
