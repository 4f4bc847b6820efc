import string
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import stoker
from stoker.errors import SchemaError
from stoker.store._codec import Compression
from support.datasets import assert_same

COMPRESSIONS = get_args(Compression)
DTYPES = [
    "bool",
    *(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


class Listed:
    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.samples[i]


@st.composite
def data_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A few samples of a few fields: fixed, ragged in any axis, scalar, text."""
    names = draw(st.lists(st.text(string.ascii_letters, min_size=1), min_size=1, max_size=4, unique=True))
    names = [name for name in names if name != "index"] or ["x"]
    count = draw(st.integers(1, 6))
    samples: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in names:
        kind = draw(st.sampled_from(["fixed", "ragged", "scalar", "text"]))
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
        for sample in samples:
            if kind == "text":
                sample[name] = draw(st.text(max_size=8))
                continue
            if kind == "ragged":
                shape = draw(st.tuples(*(st.integers(0, 4) for _ in shape)))
            elements = hnp.from_dtype(dtype, allow_nan=True)
            sample[name] = draw(hnp.arrays(dtype, () if kind == "scalar" else shape, elements=elements))
    return samples


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    samples=data_sets(),
    compression=st.sampled_from(COMPRESSIONS),
    shard_bytes=st.sampled_from([1, 64, 1 << 20]),
)
def test_whatever_goes_in_comes_out_to_the_bit(
    samples: list[dict[str, Any]],
    compression: Compression,
    shard_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    store = stoker.pack(Listed(samples), path, workers=0, compression=compression, shard_bytes=shard_bytes)
    assert len(store) == len(samples)
    for i, sample in enumerate(samples):
        assert_same(store[i], sample)
    assert store.verify().ok
    again = stoker.pack(Listed(samples), path, workers=0, compression=compression)
    assert again.content_digest == store.content_digest


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_large_compressible_values_come_out_to_the_bit(compression: Compression, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [
        {
            "wave": np.sin(np.linspace(0, i + 1, 30_000)).astype(np.float32).reshape(3, -1),
            "noise": rng.integers(0, 255, (2, 40_000 + i), dtype=np.uint8),
            "zeros": np.zeros(100_000, np.int64),
        }
        for i in range(5)
    ]
    store = stoker.pack(Listed(samples), tmp_path / "a.stoker", compression=compression)
    for i, sample in enumerate(samples):
        assert_same(store[i], sample)
    assert store.verify().ok


def test_the_digest_depends_on_content_alone(tmp_path: Path) -> None:
    samples: list[dict[str, Any]] = [{"x": np.arange(i + 3.0), "name": str(i)} for i in range(20)]
    digests = {
        stoker.pack(
            Listed(samples),
            tmp_path / f"{compression}-{shard_bytes}.stoker",
            compression=compression,
            shard_bytes=shard_bytes,
            workers=workers,
        ).content_digest
        for compression in COMPRESSIONS
        for shard_bytes, workers in ((1, 0), (10_000, 2))
    }
    assert len(digests) == 1
    samples[7]["x"] = samples[7]["x"] + 1e-12
    other = stoker.pack(Listed(samples), tmp_path / "other.stoker", workers=0)
    assert other.content_digest not in digests


def test_big_endian_and_strided_arrays_keep_their_values(tmp_path: Path) -> None:
    big = np.arange(6, dtype=">f4").reshape(2, 3)
    store = stoker.pack(Listed([{"x": big, "t": big.T}]), tmp_path / "a.stoker", workers=0)
    assert store[0]["x"].dtype == np.dtype("<f4")  # type: ignore[union-attr]
    np.testing.assert_array_equal(store[0]["x"], big)
    np.testing.assert_array_equal(store[0]["t"], big.T)


def test_a_source_that_reuses_its_buffer_is_packed_rightly(tmp_path: Path) -> None:
    class Reusing:
        buffer = np.zeros(4)

        def __len__(self) -> int:
            return 5

        def __getitem__(self, i: int) -> dict[str, Any]:
            self.buffer[:] = i
            return {"x": self.buffer}

    store = stoker.pack(Reusing(), tmp_path / "a.stoker", workers=0)
    np.testing.assert_array_equal(store.column("x")[:, 0], np.arange(5))


def test_tuples_and_torch_tensors_are_samples_too(tmp_path: Path) -> None:
    import torch

    samples: Any = [(torch.arange(3), torch.tensor(1.5), i) for i in range(4)]
    store = stoker.pack(samples, tmp_path / "a.stoker", workers=0)
    assert list(store.fields) == ["x", "y", "field_2"]
    np.testing.assert_array_equal(store[3]["x"], [0, 1, 2])
    assert store[3]["y"] == np.float32(1.5)
    assert store[3]["field_2"] == 3


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "NoneType"),
        (b"bytes", "bytes"),
        ({"nested": 1}, "dict"),
        (np.array(["a", "b"]), "dtype"),
        (np.array([object()]), "dtype"),
        (np.datetime64("2020-01-01"), "dtype"),
        (np.longdouble(1), "dtype"),
        ([[1], [2, 3]], "not an array"),
    ],
)
def test_a_value_that_hdf5_cannot_hold_is_refused_by_name(value: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=f"field 'bad'.*{why}|{why}.*field 'bad'"):
        stoker.pack(Listed([{"bad": value}]), tmp_path / "a.stoker", workers=0)


def test_bfloat16_is_refused_with_a_remedy(tmp_path: Path) -> None:
    import torch

    with pytest.raises(SchemaError, match=r"\.float\(\)"):
        stoker.pack(Listed([{"x": torch.zeros(2, dtype=torch.bfloat16)}]), tmp_path / "a", workers=0)


@pytest.mark.parametrize("name", ["", "a/b", "index", "..", "a\nb", "x" * 101])
def test_a_field_name_that_cannot_be_used_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="field name"):
        stoker.pack(Listed([{name: 1}]), tmp_path / "a.stoker", workers=0)


def test_values_whose_deviation_is_too_large_for_a_number_are_verified(tmp_path: Path) -> None:
    samples = [{"x": np.zeros((0, 0))}, {"x": np.array([[1.4e154]])}, {"x": np.array([[-1.4e154]])}]
    assert stoker.pack(Listed(samples), tmp_path / "a.stoker", workers=0).verify().ok
