from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import stoker
from stoker.store._moments import Moments, _double, merge

finite = st.floats(-1e6, 1e6, width=32)


@given(
    samples=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 9)),
        elements=finite,
    ),
    cut=st.integers(0, 9),
)
def test_merged_parts_equal_numpy_over_the_whole(samples: NDArray[np.float32], cut: int) -> None:
    parts = [part for part in (samples[:cut], samples[cut:]) if len(part)]
    found = merge([Moments.of(part, 0) for part in parts])
    exact = samples.astype(np.float64)
    np.testing.assert_allclose(found.mean, exact.mean(axis=(0, 2)), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.std, exact.std(axis=(0, 2)), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.minimum, exact.min(axis=(0, 2)))
    np.testing.assert_array_equal(found.maximum, exact.max(axis=(0, 2)))


@given(
    block=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int64, np.bool_]),
        st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 40)),
    ),
    axes=st.permutations(range(3)),
)
def test_values_in_given_room_are_those_of_astype_and_sum_to_the_same_bits(
    block: NDArray[Any], axes: list[int]
) -> None:
    laid_out = np.ascontiguousarray(block.transpose(axes)).transpose(np.argsort(axes))
    found, plain = _double(laid_out, np.full(block.size + 3, 7.0)), laid_out.astype(np.float64)
    np.testing.assert_array_equal(found, plain)
    with np.errstate(all="ignore"):
        assert found.sum(axis=(0, 2)).tobytes() == plain.sum(axis=(0, 2)).tobytes()


def test_a_large_offset_loses_no_digits() -> None:
    samples = 1e8 + np.random.default_rng(0).standard_normal((100, 2, 5000))
    found = merge([Moments.of(part, 0) for part in np.split(samples, 10)])
    np.testing.assert_allclose(found.std, samples.std(axis=(0, 2)), rtol=1e-9)


def test_values_that_are_not_finite_are_counted_apart() -> None:
    samples = np.array([[[1.0, np.nan, 3.0]], [[np.inf, -np.inf, 5.0]]])
    found = Moments.of(samples, 0)
    assert found.count.tolist() == [3]
    assert found.num_nonfinite.tolist() == [3]
    assert (found.mean[0], found.minimum[0], found.maximum[0]) == (3.0, 1.0, 5.0)
    assert found.std[0] == pytest.approx(np.std([1, 3, 5]))


def test_a_field_of_no_finite_value_has_zeros() -> None:
    found = Moments.of(np.full((2, 1, 3), np.nan), 0)
    assert found.count.tolist() == [0]
    assert found.mean.tolist() == found.minimum.tolist() == [0.0]


def test_parts_of_unequal_channels_become_one_channel() -> None:
    one, two = np.arange(6.0).reshape(1, 2, 3), np.arange(3.0).reshape(1, 1, 3)
    found = merge([Moments.of(one, 0), Moments.of(two, 0)])
    everything = np.concatenate([one.ravel(), two.ravel()])
    assert found.mean.tolist() == pytest.approx([everything.mean()])
    assert found.std.tolist() == pytest.approx([everything.std()])


def test_a_channel_axis_that_is_really_space_is_not_taken_for_channels() -> None:
    assert len(Moments.of(np.zeros((2, 128, 128)), 0).count) == 1


@pytest.mark.parametrize("workers", [0, 3])
def test_statistics_of_a_store_equal_numpy(workers: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    samples: list[dict[str, Any]] = [
        {
            "fixed": rng.normal(3, 2, (3, 40)).astype(np.float32),
            "ragged": rng.integers(0, 200, (2, int(rng.integers(1, 50)))).astype(np.uint8),
            "scalar": float(i),
            "flag": bool(i % 3),
            "image": rng.integers(0, 255, (8, 9, 3)).astype(np.uint8),
        }
        for i in range(50)
    ]
    store = stoker.pack(
        samples,
        tmp_path / "a.stoker",
        workers=workers,
        shard_bytes=4000,
        channel_axis={"image": 2},
    )
    fixed = np.stack([s["fixed"] for s in samples]).astype(np.float64)
    np.testing.assert_allclose(store.stats["fixed"].mean, fixed.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(store.stats["fixed"].std, fixed.std(axis=(0, 2)), rtol=1e-12)
    ragged = np.concatenate([s["ragged"] for s in samples], axis=1)
    np.testing.assert_allclose(store.stats["ragged"].mean, ragged.mean(axis=1), rtol=1e-12)
    assert store.stats["ragged"].count == (ragged.shape[1],) * 2
    assert store.stats["scalar"].mean == pytest.approx((24.5,))
    assert store.stats["flag"].mean == pytest.approx((33 / 50,))
    image = np.stack([s["image"] for s in samples])
    np.testing.assert_allclose(store.stats["image"].mean, image.mean(axis=(0, 1, 2)), rtol=1e-12)
    assert store.stats["image"].max == tuple(image.max(axis=(0, 1, 2)))
