from pathlib import Path

import pytest

from stoker.recipes.emg_pose import write_sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight sessions of four users, two seconds each: four to learn from, two each to validate and test."""
    folder = tmp_path_factory.mktemp("emg2pose")
    write_sessions(folder, num_users=4, sessions_per_user=1, seconds=2.0, seed=3)
    return folder
