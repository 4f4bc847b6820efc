import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.errors import BadSampleError
from stoker.store.sources import FolderSource
from stoker.store.sources._formats import READER_OF

SUFFIXES = sorted(READER_OF)
NOBODY = 65534


def why(source: FolderSource, i: int = 0) -> str:
    with pytest.raises(BadSampleError) as caught:
        source[i]
    assert caught.value.key == source.key(i)
    assert caught.value.__cause__ is not None
    return caught.value.why


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_is_called_empty(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").touch()
    assert why(FolderSource(tmp_path)).startswith("the file is empty (0 bytes)")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_another_kind_is_called_unreadable_in_one_short_line(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"This is no such file.\n" * 100)
    reason = why(FolderSource(tmp_path))
    assert reason.startswith(f"not a readable {suffix[1:]} file: ")
    assert "\n" not in reason
    assert len(reason) < 300


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_went_away_is_called_missing(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.touch()
    source = FolderSource(tmp_path)
    path.unlink()
    assert why(source) == f"no such file: {path}"
    assert source.fingerprint(0) == bytes(16)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_in_place_of_the_file_is_called_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.touch()
    source = FolderSource(tmp_path)
    path.unlink()
    path.mkdir()
    assert why(source) == f"a folder, not a file: {path}"


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_forbidden_file_is_called_forbidden(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"secret")
    path.chmod(0)
    source = FolderSource(tmp_path)
    with ordinary_user():
        assert why(source) == f"no permission to read {path}"


def test_a_bad_sample_survives_pickling_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    with pytest.raises(BadSampleError) as caught:
        FolderSource(tmp_path)[0]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.key, copy.why) == (caught.value.key, caught.value.why)
