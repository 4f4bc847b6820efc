"""Random bits: good ones, the same from numpy and torch, and noise that is noise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from stoker.augment import (
    Choice,
    Integers,
    LogUniform,
    Normal,
    Uniform,
    distribution,
    normal_noise,
    uniform_noise,
)
from stoker.augment._keys import column_key, device_keys, host_keys, mix, signed, uniforms
from stoker.errors import UsageError

NUMBERS = np.array([0, 1, -1, 2**31, 2**62, -(2**63), 2**63 - 1, 123456789], np.int64)


def test_numpy_and_torch_mix_the_same_bits() -> None:
    np.testing.assert_array_equal(mix(NUMBERS), mix(torch.from_numpy(NUMBERS)).numpy())


def test_mixing_is_that_of_splitmix64() -> None:
    state = signed(0x9E3779B97F4A7C15)  # the generator's first step from seed 0
    assert int(mix(np.array([state], np.int64))[0]) == signed(0xE220A8397B1DCDAF)


def test_the_host_and_the_device_make_the_same_keys() -> None:
    for parts in ((0, 0, 0), (2**64 - 1, 5, 1), (-3, 2**40, 7)):
        host = host_keys(parts, NUMBERS)
        np.testing.assert_array_equal(host, device_keys(parts, torch.from_numpy(NUMBERS)).numpy())
        as_tensors = tuple(torch.tensor(signed(part)) for part in parts)
        np.testing.assert_array_equal(host, device_keys(as_tensors, torch.from_numpy(NUMBERS)).numpy())


def test_every_part_of_a_key_counts_in_its_place() -> None:
    index = np.array([0, 1], np.int64)
    keys = {
        host_keys(parts, index).tobytes() for parts in ((0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0), (0, 0))
    }
    assert len(keys) == 5
    assert column_key(0, 1) != column_key(1, 0)


def test_neighbouring_samples_epochs_and_streams_are_uncorrelated() -> None:
    columns = [column_key(0, 3), column_key(0, 4), column_key(1, 3)]
    streams = []
    for parts in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)):
        keys = host_keys(parts, np.arange(20_000))
        streams += [uniforms(torch.from_numpy(mix(keys + column))).numpy() for column in columns]
    for stream in streams:
        assert stats.kstest(stream, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(stream[:-1], stream[1:])[0, 1]) < 5 / math.sqrt(20_000)
    correlations = np.corrcoef(np.stack(streams)) - np.eye(len(streams))
    assert np.abs(correlations).max() < 5 / math.sqrt(20_000)


def test_uniform_numbers_are_never_zero_or_one() -> None:
    ends = uniforms(torch.tensor([0, -1, 2**63 - 1, -(2**63)]))
    assert bool(((ends > 0) & (ends < 1)).all())


KEYS = torch.from_numpy(host_keys((1, 2, 3), np.arange(64)))


@pytest.fixture(scope="module")
def noise() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return normal_noise(KEYS, 4, 4001).double().numpy()


def test_noise_is_normal(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    flat = noise.ravel()
    assert stats.kstest(flat, "norm").pvalue > 1e-3  # of a million numbers
    assert abs(flat.mean()) < 5 / math.sqrt(len(flat))
    assert abs(flat.var() - 1) < 5 * math.sqrt(2 / len(flat))
    assert abs(stats.skew(flat)) < 5 * math.sqrt(6 / len(flat))
    assert abs(stats.kurtosis(flat)) < 5 * math.sqrt(24 / len(flat))
    beyond = (np.abs(flat) > 3.5).sum()
    expected = 2 * stats.norm.sf(3.5) * len(flat)
    assert abs(beyond - expected) < 5 * math.sqrt(expected)


def test_noise_has_no_memory_in_time(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    for power in (1, 2):  # squares too: both numbers of a pair share their radius's bits
        values = noise**power - (power == 2)
        for lag in (1, 2, 3, 7, 64, 1000, 2000):
            correlation = (values[..., :-lag] * values[..., lag:]).mean() / values.var()
            assert abs(correlation) < 5 / math.sqrt(values[..., lag:].size)


def test_noise_is_white(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    spectrum = (np.abs(np.fft.rfft(noise[..., :4000])) ** 2).mean((0, 1))[1:-1] / 4000
    assert abs(spectrum - 1).max() < 6 / math.sqrt(noise.shape[0] * noise.shape[1])


def test_noise_differs_between_samples_and_channels(
    noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    rows = noise.reshape(-1, noise.shape[-1])
    for power in (1, 2):
        correlations = np.corrcoef(rows**power) - np.eye(len(rows))
        assert np.abs(correlations).max() < 6 / math.sqrt(rows.shape[1])


def test_noise_is_the_same_however_it_is_cut() -> None:
    whole = normal_noise(KEYS, 3, 1001)
    assert torch.equal(normal_noise(KEYS[5:9], 3, 1001), whole[5:9])
    assert torch.equal(normal_noise(KEYS, 2, 500), whole[:, :2, :500])
    assert whole.shape == (64, 3, 1001)
    large = normal_noise(KEYS, 3, 20_001)  # computed in parts
    assert torch.equal(large[..., :1001], whole)
    assert torch.equal(normal_noise(KEYS[7:8], 3, 20_001), large[7:8])


def test_uniform_noise_is_uniform_and_independent() -> None:
    keys = torch.from_numpy(host_keys((0,), np.arange(5000)))
    numbers = uniform_noise(keys, 4).numpy()
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(numbers.T) - np.eye(4)).max() < 5 / math.sqrt(5000)


def test_quantiles_agree_with_scipy() -> None:
    u = torch.linspace(0.001, 0.999, 57, dtype=torch.float64)[:, None]
    for made, reference in (
        (Uniform(-2, 3), stats.uniform(-2, 5)),
        (LogUniform(0.1, 10), stats.loguniform(0.1, 10)),
        (Normal(1, 2), stats.norm(1, 2)),
    ):
        numbers = torch.tensor(made.numbers, dtype=torch.float64)[:, None]
        np.testing.assert_allclose(made.quantile(u, numbers), reference.ppf(u.numpy()), rtol=1e-9)


def test_shorthand_stands_for_distributions() -> None:
    assert distribution(0.1, "x", number="symmetric") == Uniform(-0.1, 0.1)
    assert distribution(0.1, "x", number="up to") == Uniform(0, 0.1)
    assert distribution(0.1, "x") == Uniform(0.1, 0.1)
    assert distribution((1, 2), "x") == Uniform(1, 2)
    assert distribution({"choice": [1, 2, 5]}, "x") == Choice(1, 2, 5)
    for made in (Uniform(0, 1), LogUniform(1, 2), Normal(0, 1), Integers(-1, 1), Choice(3, 4)):
        assert distribution(made.to_config(), "x") == made
        assert eval(repr(made)) == made


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("fast", "x must be a number, a pair"),
        ((1, 2, 3), "x as a pair must be"),
        ((2, 1), "low must be at most its high"),
        ({"unifrom": [0, 1]}, "x as a mapping must be one of uniform"),
        ({"uniform": [0]}, "uniform must have two numbers"),
        ({"log_uniform": [0, 1]}, "above 0"),
        ((-1, 1), "x must lie from 0 to 1"),
        (Normal(0, 1), "x must lie from 0 to 1"),
        (True, "x must be a number"),
        (float("nan"), "finite"),
    ],
)
def test_bad_distributions_are_refused(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        distribution(value, "x", within=(0, 1))  # type: ignore[arg-type]


def test_other_bad_distributions_are_refused_too() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Choice()
    with pytest.raises(UsageError, match="whole numbers"):
        Integers(0, 1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="2\\*\\*24"):
        Integers(0, 1 << 30)
    with pytest.raises(UsageError, match="std at least 0"):
        Normal(0, -1)
