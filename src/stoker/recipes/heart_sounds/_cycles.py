"""From a recording to its cycles: resample, band-pass, standardise, segment, judge, fit.

A cycle is x [1, length], from one S1 to the next, padded with zeros behind (a cycle that is longer
than the length keeps its beginning), and bounds [5]: the points at which S1, systole, S2 and diastole
begin and the last one ends.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stoker.config import Settings
from stoker.recipes.heart_sounds._segmentation import Segmentation, read_states, require_scipy, segment

Positive = Annotated[float, Field(gt=0)]

# Silent is what no microphone gives, such as padding and lost packets: this share of a loud point, and less.
# Between the sounds of a heart recorded well, or denoised, it is more.
_SILENCE = 1e-4


class CycleSettings(Settings):
    """How recordings become cycles; part of the store's identity.

    At 2,500 points a second 4,000 points are 1.6 s, more than any cycle that is kept: none is cut.
    """

    rate: Annotated[int, Field(ge=1000)] = 2500
    length: Annotated[int, Field(ge=16)] = 4000
    band_hz: tuple[Positive, Positive] = (25.0, 400.0)
    cycle_s: tuple[Positive, Positive] = (0.4, 1.5)
    # Power a hertz of 25 to 150 over that of 200 to 400 Hz. White noise has 0, but so has a loud murmur.
    min_snr_db: float = -10.0
    max_crest: Positive = 50.0  # peak over mean magnitude
    max_silence: Annotated[float, Field(ge=0, le=1)] = 0.5  # longest silent stretch over the cycle's length
    use_states: bool = True  # segmentations made by people, where there are some


@dataclass(frozen=True)
class Judged:
    """The cycles of a recording that are good enough, and how many were not."""

    signal: NDArray[np.float32]  # [T], band-passed and standardised, at the settings' rate
    starts: NDArray[np.int64]  # [k, 5], points of the signal
    num_found: int
    refused: dict[str, int]  # number by reason


def read_signal(path: Path, settings: CycleSettings) -> NDArray[np.float32]:
    """A recording, cleaned: [T] at the settings' rate."""
    return clean(*read_recording(path), settings)


def read_cycles(path: Path, states: Path | None, settings: CycleSettings) -> Judged:
    """Read a recording and find its cycles."""
    signal = read_signal(path, settings)
    found = _segmentation(signal, states, settings)
    starts = np.rint(found.cycles() * settings.rate).astype(np.int64)
    starts = starts[starts[:, -1] <= len(signal)]
    silence = _SILENCE * float(np.quantile(np.abs(signal), 0.99)) if len(signal) else 0.0
    kept, refused = [], dict.fromkeys(("length", "noise", "crest", "silence"), 0)
    for row in starts:
        why = _fault(signal[row[0] : row[-1]], silence, settings)
        if why is None:
            kept.append(row)
        else:
            refused[why] += 1
    table = np.array(kept, np.int64).reshape(-1, 5)
    return Judged(signal, table, len(starts), {why: count for why, count in refused.items() if count})


def read_recording(path: Path) -> tuple[NDArray[np.float64], int]:
    """Mono [T] and its rate; several channels are averaged."""
    try:
        import soundfile
    except ImportError as error:
        from stoker.errors import MissingExtraError

        raise MissingExtraError("reading recordings", extra="audio", library="soundfile") from error
    data, rate = soundfile.read(path, always_2d=True, dtype="float64")
    return data.mean(axis=1), int(rate)


def clean(raw: NDArray[np.float64], rate: int, settings: CycleSettings) -> NDArray[np.float32]:
    """Resample, band-pass without shifting phases, standardise: [T] at the settings' rate."""
    require_scipy()
    import scipy.signal

    common = math.gcd(rate, settings.rate)
    signal = scipy.signal.resample_poly(raw, settings.rate // common, rate // common)
    low, high = settings.band_hz
    high = min(high, 0.45 * rate, 0.45 * settings.rate)
    sections = scipy.signal.butter(4, [low, high], "bandpass", fs=settings.rate, output="sos")
    signal = scipy.signal.sosfiltfilt(sections, signal, padlen=min(len(signal) - 1, settings.rate))
    spread = signal.std()
    standard = (signal - signal.mean()) / (spread if spread > 0 else 1.0)
    return np.asarray(standard, np.float32)


def cut(signal: NDArray[np.float32], row: NDArray[np.int64], length: int) -> dict[str, NDArray[np.generic]]:
    """One cycle as a sample: x [1, length] and bounds [5]."""
    piece = signal[row[0] : row[-1]][:length]
    x = np.zeros((1, length), np.float32)
    x[0, : len(piece)] = piece
    return {"x": x, "bounds": np.minimum(row - row[0], length).astype(np.int32)}


def _segmentation(signal: NDArray[np.float32], states: Path | None, settings: CycleSettings) -> Segmentation:
    if states is not None and settings.use_states:
        return read_states(states.read_text())
    return segment(signal, settings.rate)


def _fault(cycle: NDArray[np.float32], silence: float, settings: CycleSettings) -> str | None:
    """Why a cycle is not good enough, if it is not."""
    import scipy.signal

    shortest, longest = settings.cycle_s
    if not shortest <= len(cycle) / settings.rate <= longest:
        return "length"
    magnitude = np.abs(cycle)
    if magnitude.max() > settings.max_crest * magnitude.mean():
        return "crest"
    if _longest(magnitude <= silence) > settings.max_silence * len(cycle):
        return "silence"
    frequency, power = scipy.signal.periodogram(cycle, settings.rate)
    sound = power[(frequency >= 25) & (frequency < 150)].mean()
    noise = power[(frequency >= 200) & (frequency < 400)].mean()
    if 10 * np.log10((sound + 1e-20) / (noise + 1e-20)) < settings.min_snr_db:
        return "noise"
    return None


def _longest(chosen: NDArray[np.bool_]) -> int:
    """The length of the longest run of True."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return int((edges[1::2] - edges[::2]).max(initial=0))
