"""Synthetic heart sounds whose every boundary is known.

A cycle is S1, systole, S2, diastole. S1 and S2 are short decaying tones (S1 lower and longer); a
systolic murmur is band-limited noise with a crescendo-decrescendo shape between S1 and S2, a diastolic
one decays after S2. Cycles vary in length from beat to beat and with breathing; broadband noise, and
now and then a rub of the chest piece, lie over all of it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.recipes.heart_sounds._segmentation import DIASTOLE, S1, S2, SYSTOLE, Segmentation

CLASSES = ("diastolic_murmur", "normal", "systolic_murmur")
RATE = 4000

_S1_S, _S2_S = 0.11, 0.08


@dataclass(frozen=True)
class Recording:
    """One recording and the truth about it."""

    signal: NDArray[np.float32]  # [T] in [-1, 1]
    rate: int
    truth: Segmentation


def synthesize(
    kind: str,
    *,
    seconds: float,
    rng: np.random.Generator,
    rate: int = RATE,
    snr_db: float = 25.0,
    beats_per_minute: float | None = None,
    rub: bool = False,
) -> Recording:
    """Make one recording of a kind of `CLASSES`.

    Args:
        kind: normal, systolic_murmur or diastolic_murmur.
        seconds: its length; it begins somewhere within a cycle.
        rng: drawn from.
        rate: points a second.
        snr_db: power of the heart's sound over that of the broadband noise.
        beats_per_minute: drawn between 55 and 110 if not given.
        rub: add the noise of a chest piece that moves, once.
    """
    num_points = round(seconds * rate)
    sound = np.zeros(num_points)
    beat_s = 60.0 / (rng.uniform(55, 110) if beats_per_minute is None else beats_per_minute)
    start_s = -rng.uniform(0, beat_s)
    starts: list[float] = []
    while start_s < seconds:
        breathing = 1 + 0.04 * np.sin(2 * np.pi * start_s / 4.0)
        cycle_s = beat_s * breathing * rng.normal(1.0, 0.02)
        systole_s = 0.3 * np.sqrt(cycle_s)  # systole shortens less than diastole as the heart speeds up
        _add_cycle(sound, kind, start_s, cycle_s, systole_s, rate, rng)
        starts += [start_s, start_s + _S1_S, start_s + systole_s, start_s + systole_s + _S2_S]
        start_s += cycle_s
    noise = rng.standard_normal(num_points)
    signal = sound + noise * np.sqrt(np.mean(sound**2) / 10 ** (snr_db / 10))
    if rub:
        _add(signal, 0.5 * _turbulence(0.2, rate, rng, band_hz=(20, 600)), rng.uniform(0, seconds), rate)
    scaled = 0.8 * signal / np.abs(signal).max()
    return Recording(scaled.astype(np.float32), rate, _clipped([*starts, start_s], seconds))


def _clipped(starts: list[float], seconds: float) -> Segmentation:
    """The states between 0 and the recording's end."""
    edges = np.array(starts)
    states = np.tile([S1, SYSTOLE, S2, DIASTOLE], len(starts) // 4)
    inside = (edges[1:] > 0) & (edges[:-1] < seconds)
    kept = np.append(edges[:-1][inside], edges[1:][inside][-1])
    return Segmentation(np.clip(kept, 0.0, seconds), states[inside].astype(np.int64))


def _add_cycle(
    sound: NDArray[np.float64],
    kind: str,
    start_s: float,
    cycle_s: float,
    systole_s: float,
    rate: int,
    rng: np.random.Generator,
) -> None:
    _add(sound, _burst(45, _S1_S, rate, rng), start_s, rate)
    _add(sound, 0.7 * _burst(65, _S2_S, rate, rng), start_s + systole_s, rate)
    if kind == "systolic_murmur":
        murmur = _turbulence(systole_s - 0.08, rate, rng, band_hz=(100, 400))
        diamond = 1 - np.abs(np.linspace(-1, 1, len(murmur)))
        _add(sound, 0.4 * murmur * diamond, start_s + 0.08, rate)
    elif kind == "diastolic_murmur":
        murmur = _turbulence(0.6 * (cycle_s - systole_s), rate, rng, band_hz=(100, 400))
        falling = np.exp(-3 * np.linspace(0, 1, len(murmur)))
        _add(sound, 0.4 * murmur * falling, start_s + systole_s + 0.06, rate)


def _burst(frequency: float, length_s: float, rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A damped tone with a few harmonics: a valve closing."""
    t = np.arange(round(length_s * rate)) / rate
    pitch = frequency * rng.uniform(0.9, 1.1)
    tone = sum(np.sin(2 * np.pi * pitch * k * t) / k**2 for k in (1, 2, 3))
    shaped: NDArray[np.float64] = tone * np.exp(-5 * t / length_s) * np.sin(np.pi * t / length_s) ** 0.3
    return shaped


def _turbulence(
    length_s: float, rate: int, rng: np.random.Generator, *, band_hz: tuple[float, float]
) -> NDArray[np.float64]:
    """Noise within a band."""
    num_points = max(8, round(length_s * rate))
    spectrum = np.fft.rfft(rng.standard_normal(num_points))
    frequency = np.fft.rfftfreq(num_points, 1 / rate)
    spectrum[(frequency < band_hz[0]) | (frequency > band_hz[1])] = 0
    return np.fft.irfft(spectrum, num_points)


def _add(signal: NDArray[np.float64], part: NDArray[np.float64], start_s: float, rate: int) -> None:
    start = round(start_s * rate)
    stop = min(len(signal), start + len(part))
    first = max(start, 0)
    if first < stop:
        signal[first:stop] += part[first - start : stop - start]
