"""One checkpoint: whole or absent, safe to load, damage is named."""

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UsageError,
)
from stoker.train import load_checkpoint, save_checkpoint
from stoker.train._checkpoint_folder import CheckpointFolder
from support.killed_checkpoint import save_and_die


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    state = {
        "weights": OrderedDict(a=torch.arange(6.0).reshape(2, 3), b=torch.ones(2, dtype=torch.bfloat16)),
        "plain": {"n": 1, "x": 0.1, "none": None, "yes": True, "text": "é", 3: [1, (2, 3)]},
        "numpy": {"number": np.float64(0.1), "whole": np.int64(3), "array": np.arange(3)},
        "path": tmp_path,
    }
    save_checkpoint(tmp_path / "new" / "a.pt", state)
    found = load_checkpoint(tmp_path / "new" / "a.pt")
    torch.testing.assert_close(found["weights"], dict(state["weights"]), rtol=0, atol=0)  # type: ignore[call-overload]
    assert found["plain"] == state["plain"]
    assert found["numpy"]["number"] == 0.1
    assert found["numpy"]["array"].tolist() == [0, 1, 2]
    assert found["path"] == str(tmp_path)


def test_any_pytorch_program_and_any_zip_tool_opens_it(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.pt", {"a": torch.ones(3)})
    assert torch.load(tmp_path / "a.pt", weights_only=True)["a"].tolist() == [1, 1, 1]
    with zipfile.ZipFile(tmp_path / "a.pt") as file:
        assert file.testzip() is None


def test_every_damaged_byte_is_noticed_and_the_file_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"a": torch.arange(20)})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpointError, match=r"a\.pt is .*resume='previous'"):
            load_checkpoint(path)
    for length in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpointError, match=r"a\.pt is cut short"):
            load_checkpoint(path)
    path.unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"a\.pt"):
        load_checkpoint(path)


def test_code_in_a_file_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path(tmp_path / "ran").write_text, ("x",)

    with pytest.raises(UsageError, match=r"got Hostile at state\['a'\]\[1\]"):
        save_checkpoint(tmp_path / "a.pt", {"a": [1, Hostile()]})
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("stoker.train._checkpoint._plain", lambda value, place: value)  # noqa: ARG005
    save_checkpoint(tmp_path / "a.pt", {"a": Hostile()})
    with pytest.raises(DamagedCheckpointError, match="cannot be loaded safely"):
        load_checkpoint(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write .*file/a\.pt"):
        save_checkpoint(tmp_path / "file" / "a.pt", {})


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path / "a.pt", {"n": 1})

    def full(*arguments: object) -> None:  # noqa: ARG001 - fails whatever it is given
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CheckpointError, match=r"cannot write .*a\.pt: No space left on device"):
            save_checkpoint(tmp_path / "a.pt", {"n": 2})
    assert load_checkpoint(tmp_path / "a.pt") == {"n": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_the_previous_and_the_best_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "run")
    assert folder.find("auto") is None
    for number in range(4):
        folder.save({"n": number}, best=number == 1)
    found = {
        name: load_checkpoint(folder.folder / f"{name}.pt")["n"] for name in ("last", "previous", "best")
    }
    assert found == {"last": 3, "previous": 2, "best": 1}
    folder.last.unlink()
    with pytest.raises(
        CheckpointNotFoundError, match=r"no checkpoint .*last\.pt; there is resume='previous'"
    ):
        folder.find("auto")
    assert folder.find("best") == folder.best


def test_killed_at_any_line_of_saving_the_checkpoints_are_whole(tmp_path: Path) -> None:
    outcomes = save_and_die(tmp_path)
    assert len(outcomes) > 30
    assert set(outcomes) == {(1, 0, True), (1, 1, True), (2, 1, True)}
