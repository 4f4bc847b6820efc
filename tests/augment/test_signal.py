"""Signal transforms against numpy and scipy."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
from numpy.typing import NDArray
from torch import Tensor

from stoker.augment import Integers, Pipeline, Transform
from stoker.augment.signal import (
    BandPass,
    BandStop,
    BaselineWander,
    ChannelDropout,
    ChannelRoll,
    ChannelShuffle,
    Crop,
    FrequencyMask,
    GaussianNoise,
    HighPass,
    LowPass,
    PowerlineNoise,
    Resample,
    Speed,
    Standardize,
    TimeMask,
    TimeShift,
    TimeWarp,
)
from stoker.errors import UsageError

GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(16, 2, 1001, generator=GENERATOR) + 0.5


def run(transform: Transform, x: Tensor = X) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """The result and the parameters, as arrays."""
    aug = Pipeline(transform, roles={"x": "signal"})
    draws = aug.draw(range(len(x)))
    params = {name: value.numpy() for name, value in aug.explain(draws)[0].items()}
    return aug.replay({"x": x}, draws)["x"].numpy(), params


@pytest.mark.parametrize("length", [1000, 1001])
def test_a_circular_shift_is_numpy_roll(length: int) -> None:
    after, params = run(TimeShift(0.4), X[..., :length])
    for row, before, shift in zip(after, X[..., :length].numpy(), params["shift"], strict=True):
        np.testing.assert_array_equal(row, np.roll(before, round(float(shift * np.float32(length))), -1))


def test_a_padded_shift_brings_in_zeros() -> None:
    after, params = run(TimeShift(Integers(-300, 300), unit="samples", circular=False))
    for row, before, shift in zip(after, X.numpy(), params["shift"], strict=True):
        expected = np.zeros_like(before)
        if shift >= 0:
            expected[:, shift:] = before[:, : 1001 - shift]
        else:
            expected[:, :shift] = before[:, -shift:]
        np.testing.assert_array_equal(row, expected)


def test_a_shift_beyond_the_end_leaves_nothing() -> None:
    after, _ = run(TimeShift((5000, 6000), unit="samples", circular=False))
    assert (after == 0).all()


def test_crops_reach_every_start() -> None:
    ramp = torch.arange(12.0).repeat(500, 1, 1)
    aug = Pipeline(Crop(10, return_start=True), roles={"x": "signal"})
    after = aug({"x": ramp}, index=range(500))
    assert sorted(after["x"][:, 0, 0].unique().tolist()) == [0, 1, 2]
    assert torch.equal(after["x"][:, 0, 0].long(), after["x_start"])
    assert torch.equal(after["x"][:, 0], after["x_start"][:, None] + torch.arange(10.0))


def test_noise_has_the_ratio_that_was_drawn_and_is_new_in_every_channel() -> None:
    x = torch.randn(16, 4, 20_000, generator=GENERATOR) * 3
    after, params = run(GaussianNoise((0, 30)), x)
    noise = after - x.numpy()
    ratio = 10 * np.log10((x.numpy() ** 2).mean((1, 2)) / (noise**2).mean((1, 2)))
    np.testing.assert_allclose(ratio, params["snr_db"], atol=0.15)
    for row in noise:
        assert np.abs(np.corrcoef(row) - np.eye(4)).max() < 0.05
    assert np.abs(np.corrcoef(noise[:, 0]) - np.eye(16)).max() < 0.05


def test_silence_gets_no_noise() -> None:
    after, _ = run(GaussianNoise(0), torch.zeros(2, 1, 50))
    assert (after == 0).all()


def test_time_masks_are_as_long_as_drawn_and_lie_inside() -> None:
    x = torch.ones(200, 2, 500)
    after, params = run(TimeMask((0, 100)), x)
    lengths = np.round(params["length"][:, 0]).astype(int)
    np.testing.assert_array_equal((after == 0).sum(-1), np.stack([lengths, lengths], 1))
    for row in after[lengths > 0, 0]:
        where = np.flatnonzero(row == 0)
        assert (np.diff(where) == 1).all()
    starts = np.array([np.flatnonzero(row == 0)[0] for row in after[lengths > 0, 0]])
    assert starts.min() < 25
    assert (starts + lengths[lengths > 0]).max() > 475


def test_time_masks_reach_both_ends_and_may_cover_all() -> None:
    after, _ = run(TimeMask((3, 3)), torch.ones(300, 1, 5))
    assert {tuple(np.flatnonzero(row == 0).tolist()) for row in after[:, 0]} == {
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
    }
    after, _ = run(TimeMask(50000), torch.ones(40, 1, 30))
    assert (after == 0).all(-1).any()


def test_a_plain_frequency_mask_removes_whole_bins() -> None:
    after, params = run(FrequencyMask((0.1, 0.4)), X.double())
    before, spectrum = np.fft.rfft(X.double().numpy()), np.fft.rfft(after)
    for row, was, width in zip(spectrum, before, params["width"][:, 0], strict=True):
        gone = np.abs(row[0]) < 1e-9
        assert gone.sum() == round(float(width * np.float32(501)))
        np.testing.assert_allclose(row[:, ~gone], was[:, ~gone], atol=1e-9)


def test_a_smooth_frequency_mask_neither_rings_nor_wraps() -> None:
    time = torch.arange(2000, dtype=torch.float64)
    tone = torch.sin(2 * math.pi * 0.2 * time) * torch.exp(-((time - 100) ** 2) / 400)  # near the start
    x = tone.repeat(64, 1, 1)
    plain, params = run(FrequencyMask((0.2, 0.3)), x)
    smooth, _ = run(FrequencyMask((0.2, 0.3), smooth=True), x)
    assert np.abs(smooth[..., 1000:]).max() < 1e-3 < np.abs(plain[..., 1000:]).max()
    low = params["start"][:, 0] * (1 - params["width"][:, 0])
    hit = (low < 0.4 - 0.1) & (low + params["width"][:, 0] > 0.4 + 0.1)
    assert hit.any()
    assert np.abs(smooth[hit]).max() < 0.05


@pytest.mark.parametrize("length", [1000, 1001])
@pytest.mark.parametrize("align", ["center", "start"])
def test_speed_is_linear_interpolation(length: int, align: Any) -> None:
    x = X[..., :length].double()
    after, params = run(Speed((0.5, 2), align=align), x)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1)))
    middle = (length - 1) / 2 if align == "center" else 0
    for row, before, rate in zip(after, padded, params["rate"].astype(np.float64), strict=True):
        places = (np.arange(length) - middle) * rate + middle
        for channel in range(2):
            expected = np.interp(places, np.arange(-1, length + 1), before[channel], left=0, right=0)
            np.testing.assert_allclose(row[channel], expected, atol=1e-8)


def test_places_stay_exact_in_long_recordings() -> None:
    ramp = torch.arange(400_000, dtype=torch.float64).view(1, 1, -1)
    after, params = run(Speed((0.97, 0.98), align="start"), ramp)
    expected = np.arange(400_000) * params["rate"].astype(np.float64)[0]
    np.testing.assert_allclose(after[0, 0], expected, atol=1e-4)  # 2**-32 a sample


def test_antialiasing_takes_out_what_would_be_folded_back() -> None:
    tone = torch.sin(2 * math.pi * 0.4 * torch.arange(2000.0)).repeat(4, 1, 1)
    folded, _ = run(Speed(2, align="start"), tone)
    clean, _ = run(Speed(2, align="start", antialias=True), tone)
    inside = slice(100, 900)
    assert np.abs(folded[..., inside]).max() > 0.9
    assert np.abs(clean[..., inside]).max() < 0.02
    low = torch.sin(2 * math.pi * 0.05 * torch.arange(2000.0)).repeat(4, 1, 1)
    np.testing.assert_allclose(
        run(Speed(2, align="start", antialias=True), low)[0][..., inside], low[..., 200:1800:2], atol=2e-3
    )


def test_a_warp_never_runs_backwards_and_keeps_the_ends() -> None:
    ramp = torch.arange(1000, dtype=torch.float64).repeat(64, 1, 1)
    after, params = run(TimeWarp((0.5, 0.95)), ramp)
    slope = np.diff(after[:, 0])
    assert (slope > 0).all()
    assert (np.abs(slope - 1).max(-1) <= params["strength"] + 1e-6).all()
    assert np.abs(slope - 1).max() > 0.3
    np.testing.assert_allclose(after[:, 0, [0, -1]], np.tile([0, 999], (64, 1)), atol=1e-6)


FILTERS: list[tuple[type[Any], str, tuple[Any, ...]]] = [
    (LowPass, "low", ((2, 100),)),
    (HighPass, "high", ((0.5, 100),)),
    (BandPass, "bandpass", ((0.5, 5), (20, 100))),
    (BandStop, "bandstop", ((40, 48), (52, 60))),
]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("kind", "name", "cutoffs"), FILTERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_filters_equal_sosfiltfilt(kind: Any, name: str, cutoffs: tuple[Any, ...], order: int) -> None:
    x = X + torch.linspace(0, 5, 1001)  # a trend makes the ends hard
    after, params = run(kind(500, *cutoffs, order=order), x)
    for number in range(len(x)):
        edges = [float(params[edge][number]) for edge in kind.edges]
        sos = scipy.signal.butter(order, np.squeeze(edges), name, fs=500, output="sos")  # type: ignore[call-overload]
        expected = scipy.signal.sosfiltfilt(sos, x[number].double().numpy())
        error = np.abs(after[number] - expected).max() / expected.std()
        assert error < 1e-5


def test_filters_refuse_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="above 0 and below 250 Hz"):
        LowPass(500, (10, 300))
    with pytest.raises(UsageError, match="low must always be below high"):
        BandPass(500, (5, 30), (20, 40))
    with pytest.raises(UsageError, match="order must be from 1 to 12"):
        HighPass(500, 5, order=0)
    with pytest.raises(UsageError, match="longer than 15 samples, got 15"):
        LowPass(500, 50)(torch.zeros(1, 1, 15))
    with pytest.raises(UsageError, match="sample_rate must be above 0"):
        LowPass(0, 50)


@pytest.mark.parametrize("length", [1000, 1001])
def test_resampling_down_and_up_is_scipys(length: int) -> None:
    x = X[..., :length].double()
    after, params = run(Resample((0.1, 0.9)), x)
    for row, before, rate in zip(after, x.numpy(), params["rate"], strict=True):
        fewer = 2 * math.floor(rate * np.float32(length / 2)) + 1
        expected = scipy.signal.resample(scipy.signal.resample(before, fewer, axis=-1), length, axis=-1)
        np.testing.assert_allclose(row, expected, atol=1e-9)


def test_wander_is_slow_and_as_strong_as_drawn() -> None:
    x = torch.randn(32, 2, 60_000, generator=GENERATOR)
    after, params = run(BaselineWander(500, (0.2, 1), frequency=(0.2, 0.5)), x)
    drift = after - x.numpy()
    np.testing.assert_allclose(drift[:, 0], drift[:, 1], atol=1e-6)
    strength = drift[:, 0].std(-1) / np.sqrt((x.numpy() ** 2).mean((1, 2)))
    assert abs(np.median(strength / params["amplitude"]) - 1) < 0.2
    spectrum = np.abs(np.fft.rfft(drift[:, 0] * np.hanning(60_000)))
    frequency = np.fft.rfftfreq(60_000, 1 / 500)
    assert (frequency[spectrum.argmax(-1)] < 0.6).all()


def test_mains_hum_has_its_frequency_and_harmonics_below_the_limit() -> None:
    x = torch.randn(32, 1, 6600, generator=GENERATOR)
    after, params = run(PowerlineNoise(330, (0.5, 1), num_harmonics=2), x)
    hum = np.abs(np.fft.rfft((after - x.numpy())[:, 0] * np.hanning(6600)))
    frequency = np.fft.rfftfreq(6600, 1 / 330)
    assert set(params["frequency"].tolist()) == {50.0, 60.0}
    for row, mains, amplitude, source in zip(hum, params["frequency"], params["amplitude"], x, strict=True):
        fundamental = row[np.abs(frequency - mains) < 1].max()
        np.testing.assert_allclose(row[np.abs(frequency - 2 * mains) < 1].max() / fundamental, 0.5, atol=0.01)
        third = row[np.abs(frequency - min(3 * mains, 330 - 3 * mains)) < 1].max() / fundamental
        np.testing.assert_allclose(third, 1 / 3 if 3 * mains < 165 else 0, atol=0.01)
        power = float(source.square().mean().sqrt())
        np.testing.assert_allclose(fundamental / 6600 * 4 / math.sqrt(2), amplitude * power, rtol=0.02)


def test_channels_are_dropped_at_their_rate_but_never_all() -> None:
    after, _ = run(ChannelDropout(0.7), torch.ones(2000, 4, 3))
    dropped = (after == 0).all(-1)
    assert not dropped.all(-1).any()
    assert abs(dropped.mean() - (0.7 - 0.7**4 / 4)) < 0.02  # one of those four is kept


def test_channels_are_shuffled_into_every_order() -> None:
    after, _ = run(ChannelShuffle(), torch.arange(3.0)[:, None].expand(600, 3, 2))
    orders, counts = np.unique(after[..., 0], axis=0, return_counts=True)
    assert len(orders) == 6
    assert (np.abs(counts - 100) < 45).all()
    assert (after[..., 0] == after[..., 1]).all()


def test_rolling_channels_is_numpy_roll() -> None:
    x = torch.randn(50, 16, 3, generator=GENERATOR)
    after, params = run(ChannelRoll((-2, 1)), x)
    assert set(params["shift"].tolist()) == {-2, -1, 0, 1}
    for row, before, shift in zip(after, x.numpy(), params["shift"], strict=True):
        np.testing.assert_array_equal(row, np.roll(before, shift, 0))


def test_standardizing_makes_mean_0_and_deviation_1() -> None:
    x = X * torch.tensor([3.0, 20.0])[None, :, None]
    channel, _ = run(Standardize(), x)
    np.testing.assert_allclose(channel.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(channel.std(-1), 1, atol=1e-5)
    sample, _ = run(Standardize(per="sample"), x)
    np.testing.assert_allclose(sample.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(sample.std((1, 2)), 1, atol=1e-5)
    silence, _ = run(Standardize(), torch.full((2, 1, 9), 4.0))
    assert (silence == 0).all()
