"""``stoker plan``."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "a.stoker"
    stoker.pack([{"x": np.zeros(250, np.float32), "y": i} for i in range(200)], path, workers=0)
    return path


def plan(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker", "plan", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_accelerators_that_are_slow_enough_are_fed(store: Path) -> None:
    done = plan(str(store), "--gpus", "4", "--step-ms", "5000", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["needs"]["later_epochs"]["limit"] == "accelerators"
    assert found["needs"]["samples_per_s"] == pytest.approx(4 * 64 / 5)
    assert found["supply"]["gathered_per_s"] > 0
    assert found["supply"]["storage_bytes_per_s"] > 0


def test_too_many_wait_and_it_says_for_what(store: Path) -> None:
    done = plan(
        str(store), "--gpus", "1000", "--step-ms", "0.01", "--storage-gb-s", "1", "--memory-gb", "100"
    )
    assert done.returncode == 1, done.stderr
    assert "The limit is gathering batches" in done.stdout
    assert "as given" in done.stdout


def test_wrong_use_is_said(store: Path) -> None:
    assert plan(str(store), "--gpus", "0", "--step-ms", "5").returncode == 2
    missing = plan(str(store.parent / "none"), "--gpus", "1", "--step-ms", "5")
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
