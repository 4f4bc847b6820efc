import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stoker.errors import UsageError
from stoker.store.sources import CsvSource, FolderSource, GlobSource, Hdf5Source
from stoker.store.sources._fingerprints import mix, mix_one
from stoker.store.sources._source import Source

WORD = st.integers(0, 2**64 - 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ["a/1", "a/2", "b/3"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", np.arange(4))
    (tmp_path / "t.csv").write_text("file,y,g,s\na/1.npy,1,p,u\na/2.npy,2,q,v\nb/3.npy,3,q,\n")
    return tmp_path


def sources(folder: Path) -> list[Source]:
    import h5py

    with h5py.File(folder / "many.h5", "w") as file:
        file["x"] = np.zeros((5, 2))
        file["each/one"] = np.zeros(3)
        file["each/two"] = np.zeros(4)
    return [
        FolderSource(folder, suffixes=".npy", labels="folder"),
        FolderSource(folder, suffixes=".npy", fingerprint="content"),
        GlobSource(f"{folder}/*/*.npy"),
        CsvSource(folder / "t.csv", path_column="file", label_column="y", group_column="g", columns=["s"]),
        Hdf5Source(folder / "many.h5", fields=["x"]),
        Hdf5Source(folder / "many.h5", layout="groups", group="each"),
    ]


def test_one_fingerprint_equals_that_among_all_and_all_differ(folder: Path) -> None:
    for source in sources(folder):
        together = source.fingerprints()
        assert together.dtype == np.uint64
        assert together.shape == (len(source), 2)
        assert [row.tobytes() for row in together] == [source.fingerprint(i) for i in range(len(source))]
    # Same bytes, other time: by content alone equal samples are equal.
    by_stat, by_content = sources(folder)[2], sources(folder)[1]
    assert len(np.unique(by_stat.fingerprints(), axis=0)) == 3
    assert len(np.unique(by_content.fingerprints(), axis=0)) == 1


@given(WORD, st.lists(st.lists(WORD, min_size=3, max_size=3), min_size=1, max_size=6))
def test_mixing_one_equals_mixing_all(seed: int, words: list[list[int]]) -> None:
    together = mix(seed, [np.array(word, np.uint64) for word in words])
    for i in range(3):
        assert mix_one(seed, [word[i] for word in words]) == together[i].tobytes()


@given(WORD, st.lists(WORD, min_size=1, max_size=4), st.integers(0, 255))
def test_a_change_of_one_bit_shows_in_both_lanes(seed: int, words: list[int], bit: int) -> None:
    changed = list(words)
    changed[bit % len(words)] ^= 1 << (bit // len(words)) % 64
    before, after = mix_one(seed, words), mix_one(seed, changed)
    assert before[:8] != after[:8]
    assert before[8:] != after[8:]


def test_a_file_that_is_rewritten_changes_its_own_fingerprint_only(folder: Path) -> None:
    source = FolderSource(folder, suffixes=".npy")
    before = source.fingerprints()
    np.save(folder / "a/2.npy", np.arange(5))
    np.testing.assert_array_equal((source.fingerprints() != before).all(axis=1), [False, True, False])


def test_stat_sees_a_new_time_where_content_sees_new_bytes_only(folder: Path) -> None:
    by_stat = FolderSource(folder, suffixes=".npy")
    by_content = FolderSource(folder, suffixes=".npy", fingerprint="content")
    before_stat, before_content = by_stat.fingerprint(0), by_content.fingerprint(0)
    os.utime(folder / "a/1.npy", ns=(1, 1))
    assert by_stat.fingerprint(0) != before_stat
    assert by_content.fingerprint(0) == before_content
    os.utime(folder / "a/1.npy", ns=(-1, -1))  # before 1970
    assert by_stat.fingerprint(0) == by_stat.fingerprints()[0].tobytes()
    np.save(folder / "a/1.npy", np.arange(4)[::-1])
    assert by_content.fingerprint(0) != before_content


def test_a_changed_mask_changes_the_fingerprint(tmp_path: Path) -> None:
    for name in ["a", "m"]:
        Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / f"{name}.png")
    source = FolderSource(tmp_path, pattern="a.*", masks="m.png{stem}")
    assert source.fingerprint(0) == bytes(16)
    source = FolderSource(tmp_path, pattern="a.*", masks="../" + tmp_path.name + "/m{stem}.png")
    assert source.fingerprint(0) == bytes(16)
    (tmp_path / "ma.png").write_bytes((tmp_path / "m.png").read_bytes())
    before = source.fingerprint(0)
    os.utime(tmp_path / "ma.png", ns=(1, 1))
    assert source.fingerprint(0) not in (before, bytes(16))
    assert source.fingerprint(0) == source.fingerprints()[0].tobytes()
    assert source.fingerprint(0) != FolderSource(tmp_path, pattern="a.*").fingerprint(0)


def csv(folder: Path, **options: object) -> CsvSource:
    return CsvSource(folder / "t.csv", path_column="file", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: csv(folder, label_column="y"),
        lambda folder: csv(folder, group_column="g"),
        lambda folder: csv(folder, group_column="s"),
        lambda folder: csv(folder, columns=["g"]),
        lambda folder: csv(folder, columns=["s"]),
        lambda folder: csv(folder, columns=["g", "s"]),
        lambda folder: csv(folder, columns=["s", "g"]),
        lambda folder: csv(folder, fingerprint="content"),
    ],
)
def test_each_choice_of_columns_has_its_own_fingerprint(
    folder: Path, change: Callable[[Path], CsvSource]
) -> None:
    assert (change(folder).fingerprints() != csv(folder).fingerprints()).all()


def test_a_changed_cell_changes_its_row_only(folder: Path) -> None:
    options = {"label_column": "y", "group_column": "g", "columns": ["s"]}
    before = csv(folder, **options).fingerprints()
    text = (folder / "t.csv").read_text()
    for old, new in [("2,q,v", "7,q,v"), ("2,q,v", "2,r,v"), ("2,q,v", "2,q,w")]:
        (folder / "t.csv").write_text(text.replace(old, new))
        changed = (csv(folder, **options).fingerprints() != before).all(axis=1)
        np.testing.assert_array_equal(changed, [False, True, False])


def test_a_reader_option_changes_the_fingerprint_unless_it_is_the_default(tmp_path: Path) -> None:
    import scipy.io

    scipy.io.savemat(tmp_path / "a.mat", {"x": np.zeros(3), "z": np.ones(2)})

    def of(**options: object) -> bytes:
        return FolderSource(tmp_path, **options).fingerprint(0)  # type: ignore[arg-type]

    assert of() == of(variables=None) == of(squeeze=True)
    assert len({of(), of(variables=["x"]), of(variables=["x", "z"]), of(squeeze=False)}) == 4
    assert of(variables=["x"]) == of(variables=("x",))


def test_another_class_number_changes_the_fingerprint(folder: Path) -> None:
    before = FolderSource(folder, suffixes=".npy", labels="folder")
    last = before.fingerprint(2)
    (folder / "aa").mkdir()
    np.save(folder / "aa/0.npy", np.arange(4))
    after = FolderSource(folder, suffixes=".npy", labels="folder")
    assert after.key(3) == before.key(2) == "b/3.npy"
    assert after.fingerprint(3) != last
    assert after.fingerprint(0) == before.fingerprint(0)


def test_an_unknown_kind_of_fingerprint_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="fingerprint must be 'stat' or 'content', got 'md5'"):
        csv(folder, fingerprint="md5")
