"""Rows copied by a compiled loop are those that indexing gives."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.loader import _copying
from stoker.loader._copying import RowCopier
from stoker.store._memory import empty


def copier(row_bytes: int) -> RowCopier:
    made = RowCopier(row_bytes)
    made.expect(1 << 40, 1 << 40)
    return made


@given(
    num_rows=st.integers(1, 4),
    row_bytes=st.sampled_from([64 << 10, (64 << 10) + 128, 100_000, 1]),
    dtype=st.sampled_from([np.uint8, np.float32, np.complex128]),
    data=st.data(),
)
def test_it_copies_what_indexing_gives_and_nothing_beyond(
    num_rows: int, row_bytes: int, dtype: type[np.generic], data: st.DataObject
) -> None:
    width = -(-row_bytes // np.dtype(dtype).itemsize)
    source = np.random.default_rng(0).integers(0, 255, (num_rows, width)).astype(dtype)
    rows = np.array(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=5)), np.int64)
    out = empty((len(rows) + 1, width), source.dtype)
    out[:] = 7
    copier(source[0].nbytes).copy(source, rows, out[:-1])
    np.testing.assert_array_equal(out[:-1], source[rows])
    assert (out[-1] == 7).all()


def test_a_place_that_is_not_on_a_cache_line_is_copied_to_as_well() -> None:
    source = np.arange(2 * (64 << 10), dtype=np.uint8).reshape(2, -1)
    memory = empty((source.nbytes + 1,), source.dtype)
    out = memory[1:].reshape(source.shape)
    copier(64 << 10).copy(source, np.array([1, 0]), out)
    np.testing.assert_array_equal(out, source[::-1])


def test_only_what_is_large_and_outgrows_the_caches_and_is_read_much_is_worth_a_loop() -> None:
    assert copier(64 << 10)._loop is not None
    assert copier(16_000)._loop is None
    fitting = RowCopier(64 << 10)
    fitting.expect(1 << 40, 1 << 20)
    assert fitting._loop is None
    short = RowCopier(64 << 10)
    short.expect(1 << 29, 1 << 40)
    assert short._loop is None
    short.expect(1 << 29, 1 << 40)  # a second epoch
    assert short._loop is not None


def test_a_loader_gives_the_same_batches_by_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_copying, "_WORTH_BYTES", 1)
    monkeypatch.setattr(_copying, "_CACHE_BYTES", 1)
    images = np.random.default_rng(0).integers(0, 255, (9, 3, 256, 256)).astype(np.uint8)
    store = stoker.pack([{"x": image, "y": i} for i, image in enumerate(images)], tmp_path / "images.stoker")
    with stoker.Loader(store, batch_size=2, seed=0) as loader:
        kept = [(batch["x"], batch["index"]) for _ in range(2) for batch in loader]
    for x, index in kept:
        np.testing.assert_array_equal(x.numpy(), images[index.numpy()])
