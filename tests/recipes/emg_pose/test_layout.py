import csv
import shutil
from pathlib import Path

import h5py
import pytest

from stoker.errors import SourceError, UsageError
from stoker.recipes.emg_pose import FINGERS, GROUPS, JOINTS
from stoker.recipes.emg_pose._layout import read_sessions


def splits_of_users(folder: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for session in read_sessions(folder)[0]:
        found.setdefault(session.user, set()).add(session.split)
    return found


def test_every_joint_is_of_one_finger_and_one_group() -> None:
    assert len(set(JOINTS)) == 20
    for parts in (FINGERS, GROUPS):
        assert sorted(joint for joints in parts.values() for joint in joints) == list(range(20))
    assert [JOINTS[i] for i in FINGERS["thumb"]][:2] == ["THUMB_CMC_FE", "THUMB_CMC_AA"]
    assert {JOINTS[i].rpartition("_")[0].split("_")[1] for i in GROUPS["distal"]} == {"IP", "DIP"}


def test_the_table_says_who_is_for_what(sessions: Path) -> None:
    found, problems = read_sessions(sessions)
    assert problems == ()
    assert {each.path.stem for each in found} == {path.stem for path in sessions.glob("*.hdf5")}
    assert {each.generalization for each in found if each.split == "test"} == {"user"}
    assert splits_of_users(sessions) == {
        "u000": {"train"},
        "u001": {"train"},
        "u002": {"val"},
        "u003": {"test"},
    }


def test_the_table_may_have_its_other_name_and_its_problems_are_listed(
    sessions: Path, tmp_path: Path
) -> None:
    for path in sessions.glob("*.hdf5"):
        (tmp_path / path.name).symlink_to(path)
    with (sessions / "metadata.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0]["filename"] += "-gone"
    rows[1]["split"] = "holiday"
    with (tmp_path / "emg2pose_metadata.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found, problems = read_sessions(tmp_path)
    assert len(found) == 6
    assert sum("does not exist" in line for line in problems) == 1
    assert sum("has the split 'holiday'" in line for line in problems) == 1
    assert sum("is not in emg2pose_metadata.csv" in line for line in problems) == 2


def test_without_a_table_users_never_share_a_split(sessions: Path, tmp_path: Path) -> None:
    for path in sessions.glob("*.hdf5"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "broken.hdf5").write_bytes(b"no HDF5")
    found = splits_of_users(tmp_path)
    assert all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == {"train", "val", "test"}
    assert "broken.hdf5 is no session" in read_sessions(tmp_path)[1][0]


def test_what_is_no_folder_of_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a folder"):
        read_sessions(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="holds no session"):
        read_sessions(tmp_path)
    (tmp_path / "metadata.csv").write_text("session,user\na,b\n")
    with pytest.raises(SourceError, match="lacks the column 'side'"):
        read_sessions(tmp_path)


def test_synthetic_sessions_are_in_the_public_layout(sessions: Path) -> None:
    path = next(sessions.glob("*_left.hdf5"))
    with h5py.File(path) as file:
        table, facts = file["emg2pose/timeseries"], dict(file["emg2pose"].attrs)
        assert table.shape == (4000,)
        assert table.dtype["emg"].shape == (16,)
        assert table.dtype["joint_angles"].shape == (20,)
    assert facts["sample_rate"] == 2000
    assert facts["num_channels"] == 16
    assert facts["side"] == "left"
    assert facts["filename"] == path.stem


def test_synthetic_sessions_are_made_once(sessions: Path, tmp_path: Path) -> None:
    from stoker.recipes.emg_pose._settings import SyntheticSettings
    from stoker.recipes.emg_pose._synthetic import make_synthetic

    tiny = SyntheticSettings(num_users=3, sessions_per_user=1, seconds=0.5)
    make_synthetic(tmp_path / "made", tiny, seed=0)
    first = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()}
    make_synthetic(tmp_path / "made", tiny, seed=0)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()} == first
    make_synthetic(tmp_path / "made", tiny.model_copy(update={"num_users": 4}), seed=0)
    assert len(list((tmp_path / "made").glob("*.hdf5"))) == 8
    shutil.copytree(sessions, tmp_path / "mine")
    with pytest.raises(UsageError, match="holds something else"):
        make_synthetic(tmp_path / "mine", tiny, seed=0)
