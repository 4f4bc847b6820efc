"""Synthetic heart sounds: two beats a cycle, with or without a murmur between them.

S1 and S2 are short decaying tones (S1 lower and longer), a systolic murmur is band-limited noise
with a crescendo-decrescendo shape between S1 and S2, a diastolic one decays after S2. Heart rate
varies from beat to beat; broadband noise lies under all of it.
"""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("diastolic_murmur", "normal", "systolic_murmur")

_RATE = 4000


def synthesize(
    kind: str, *, seconds: float, rng: np.random.Generator, rate: int = _RATE
) -> NDArray[np.float32]:
    """One recording: float32 [T] in [-1, 1]."""
    num_points = round(seconds * rate)
    signal = 0.01 * rng.standard_normal(num_points)
    beat_s = 60.0 / rng.uniform(55, 110)
    start_s = rng.uniform(0, beat_s)
    while start_s < seconds:
        cycle_s = beat_s * rng.normal(1.0, 0.03)
        systole_s = 0.3 * np.sqrt(cycle_s)  # systole shortens less than diastole as the heart speeds up
        _add(signal, _burst(45, 0.11, rate, rng), start_s, rate)
        _add(signal, 0.7 * _burst(65, 0.08, rate, rng), start_s + systole_s, rate)
        if kind == "systolic_murmur":
            _add(signal, _murmur(systole_s - 0.08, rate, rng, "diamond"), start_s + 0.08, rate)
        elif kind == "diastolic_murmur":
            length_s = 0.6 * (cycle_s - systole_s)
            _add(signal, _murmur(length_s, rate, rng, "falling"), start_s + systole_s + 0.06, rate)
        start_s += cycle_s
    scaled: NDArray[np.float64] = 0.8 * signal / np.abs(signal).max()
    return scaled.astype(np.float32)


def write_recordings(folder: Path, *, num_per_class: int, seed: int = 0) -> int:
    """Write mono 16-bit wav files ``folder/CLASS/NNNN.wav`` and give their number."""
    rng = np.random.default_rng(seed)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(num_per_class):
            signal = synthesize(kind, seconds=float(rng.uniform(1.5, 4.0)), rng=rng)
            with wave.open(str(folder / kind / f"{number:04d}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(_RATE)
                file.writeframes((signal * 32767).astype("<i2").tobytes())
    return num_per_class * len(CLASSES)


def _burst(frequency: float, length_s: float, rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A damped tone with a few harmonics: a valve closing."""
    t = np.arange(round(length_s * rate)) / rate
    pitch = frequency * rng.uniform(0.9, 1.1)
    tone = sum(np.sin(2 * np.pi * pitch * k * t) / k**2 for k in (1, 2, 3))
    shaped: NDArray[np.float64] = tone * np.exp(-5 * t / length_s) * np.sin(np.pi * t / length_s) ** 0.3
    return shaped


def _murmur(length_s: float, rate: int, rng: np.random.Generator, shape: str) -> NDArray[np.float64]:
    """Turbulence: noise between 100 and 400 Hz under an envelope."""
    num_points = max(8, round(length_s * rate))
    spectrum = np.fft.rfft(rng.standard_normal(num_points))
    frequency = np.fft.rfftfreq(num_points, 1 / rate)
    spectrum[(frequency < 100) | (frequency > 400)] = 0
    place = np.linspace(0, 1, num_points)
    envelope = 1 - np.abs(2 * place - 1) if shape == "diamond" else np.exp(-3 * place)
    turbulent: NDArray[np.float64] = 0.4 * np.fft.irfft(spectrum, num_points) * envelope
    return turbulent


def _add(signal: NDArray[np.float64], part: NDArray[np.float64], start_s: float, rate: int) -> None:
    start = round(start_s * rate)
    stop = min(len(signal), start + len(part))
    if start < stop:
        signal[start:stop] += part[: stop - start]
