from pathlib import Path

import pytest

from stoker.recipes.face_parsing import write_faces


@pytest.fixture(scope="session")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty drawn faces to learn from and four for the test, 64 x 64 pixels."""
    folder = tmp_path_factory.mktemp("faces")
    write_faces(folder, num_train=20, num_test=4, size=64, seed=3)
    return folder
