import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import BadSampleError, SourceError
from stoker.store.sources import GlobSource
from stoker.store.sources._listing import list_files, split_pattern


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.arange(3))


def test_keys_are_relative_to_the_longest_folder_without_wildcards(tmp_path: Path) -> None:
    write(tmp_path / "runs/data_1/layer01.npy")
    write(tmp_path / "runs/data_2/layer02.npy")
    write(tmp_path / "runs/other/layer03.npy")
    source = GlobSource(f"{tmp_path}/runs/data_*/layer*.npy")
    assert list(source.keys()) == ["data_1/layer01.npy", "data_2/layer02.npy"]
    np.testing.assert_array_equal(source[1]["x"], [0, 1, 2])


def test_a_relative_pattern_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a/1.npy")
    monkeypatch.chdir(tmp_path)
    assert list(GlobSource("*/*.npy").keys()) == ["a/1.npy"]
    assert list(GlobSource("./a/*.npy").keys()) == ["1.npy"]


def test_a_glob_source_labels_by_folder(tmp_path: Path) -> None:
    write(tmp_path / "a/1.npy")
    write(tmp_path / "b/1.npy")
    source = GlobSource(f"{tmp_path}/**/*.npy", labels="folder")
    assert source.classes == {"y": ["a", "b"]}
    with pytest.raises(SourceError, match="start one folder higher"):
        GlobSource(f"{tmp_path}/a/*.npy", labels="folder")


def test_a_pattern_that_matches_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="found no file at all"):
        GlobSource(f"{tmp_path}/*.npy")
    with pytest.raises(SourceError, match="there is no folder"):
        GlobSource(f"{tmp_path}/missing/*.npy")


@pytest.mark.parametrize(
    ("pattern", "split"),
    [
        ("a/b/*.wav", ("a/b", "*.wav")),
        ("*.wav", (".", "*.wav")),
        ("/*.wav", ("/", "*.wav")),
        ("/a/[bc]/d.wav", ("/a", "[bc]/d.wav")),
        ("/a/b.wav", ("/a", "b.wav")),
        ("a/**/b?/c", ("a", "**/b?/c")),
    ],
)
def test_a_pattern_is_split_before_its_first_wildcard(pattern: str, split: tuple[str, str]) -> None:
    assert split_pattern(pattern) == split


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in ["a", "ab/a", "ab/b", "b/a/a", "b/a/b", "b/ab/a/b", "b/.h/a", ".a", "c/a/b/a/b"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


NAME_PATTERN = st.sampled_from(["*", "a", "b", "a*", "[ab]", "?b", "c"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.just("**") | NAME_PATTERN, max_size=4), NAME_PATTERN)
def test_a_pattern_finds_what_the_standard_glob_finds(tree: Path, folders: list[str], name: str) -> None:
    pattern = "/".join([*folders, name])
    standard = {path.relative_to(tree) for path in tree.glob(pattern) if path.is_file()}
    visible = [path for path in standard if not any(part[0] == "." for part in path.parts)]
    assert list_files(str(tree), pattern) == sorted(path.as_posix() for path in visible)


def test_two_stars_at_the_end_mean_every_file_below(tree: Path) -> None:
    assert list_files(str(tree), "b/**") == ["b/a/a", "b/a/b", "b/ab/a/b"]
    assert list_files(str(tree), "b/.*/*") == ["b/.h/a"]


def test_linked_folders_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path / "real/x/1.npy")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path / "real")
    (tmp_path / "real/x/back").symlink_to(tmp_path / "data")
    assert list_files(str(tmp_path / "data"), "**/*.npy") == ["link/x/1.npy"]


def test_a_link_to_nowhere_is_a_bad_sample_and_not_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "a.npy")
    (tmp_path / "b.npy").symlink_to(tmp_path / "gone")
    source = GlobSource(f"{tmp_path}/*.npy")
    assert list(source.keys()) == ["a.npy", "b.npy"]
    with pytest.raises(BadSampleError, match="no such file"):
        source[1]


def test_a_file_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npy"))).touch()
    with pytest.raises(SourceError, match="file names must be UTF-8"):
        GlobSource(f"{tmp_path}/*.npy")


def test_a_folder_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"every folder must be readable.*No such file"):
        list_files(str(tmp_path / "gone"), "*")
