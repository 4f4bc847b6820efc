"""Synthetic sessions in the emg2pose layout, from which angles can be learned.

A hand moves by a few synergies: slow random curves that each bend several joints. Muscles pull in
proportion to where a synergy is, one each way; an electrode hears the muscles near it, as noise whose
strength is their pull. Users differ in gain and in how the band is turned.
"""

import csv
from functools import partial
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from stoker.recipes._raw import make_up
from stoker.recipes.emg_pose._layout import DATASET, GROUP, NUM_CHANNELS, NUM_JOINTS, SAMPLE_RATE
from stoker.recipes.emg_pose._settings import SyntheticSettings

_NUM_SYNERGIES = 6
_ROW = np.dtype([("time", "<f8"), ("joint_angles", "<f4", (NUM_JOINTS,)), ("emg", "<f4", (NUM_CHANNELS,))])
_COLUMNS = ("session", "user", "stage", "start", "end", "side", "filename", "moving_hand")
_MORE_COLUMNS = ("held_out_user", "held_out_stage", "split", "generalization")


def make_synthetic(folder: Path, settings: SyntheticSettings, *, seed: int) -> None:
    """Write the sessions that the settings ask for, unless the folder has just these already."""
    facts = {"seed": seed, **settings.model_dump()}
    make_up(folder, facts, what="sessions", write=partial(write_sessions, **facts))


def write_sessions(
    folder: Path, *, num_users: int = 6, sessions_per_user: int = 2, seconds: float = 20.0, seed: int = 0
) -> int:
    """Write sessions and metadata.csv; the last users are held out. Gives the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    body = _Body(rng)
    rows = []
    for user in range(num_users):
        split = "test" if user == num_users - 1 else "val" if user == num_users - 2 else "train"
        gain, turn = rng.uniform(0.9, 1.1, NUM_CHANNELS), rng.uniform(-0.3, 0.3)  # electrodes
        for number in range(sessions_per_user):
            session = f"2022-12-06-{1670313600 + 1000 * user + number}-u{user:03d}"
            for side in ("left", "right"):
                name = f"{session}-recording-{number}_{side}"
                table = body.session(seconds, gain, turn, rng)
                facts = {"user": f"u{user:03d}", "session": session, "side": side, "filename": name}
                _write_session(folder / f"{name}.hdf5", table, facts)
                times = (table["time"][0], table["time"][-1])
                held_out = split != "train"
                start = (session, facts["user"], "synthetic", *times, side, name, side)
                rows.append((*start, held_out, False, split, "user" if held_out else ""))
    with (folder / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([(*_COLUMNS, *_MORE_COLUMNS), *rows])
    return len(rows)


class _Body:
    """What all users have in common: synergies, muscles, and where they lie under the band."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._joints = rng.uniform(-0.5, 0.9, (_NUM_SYNERGIES, NUM_JOINTS))
        num_muscles = 2 * _NUM_SYNERGIES
        places = rng.permutation(num_muscles) * NUM_CHANNELS / num_muscles + rng.uniform(
            -0.2, 0.2, num_muscles
        )
        self._places = places  # around the band, in electrodes
        self._pulls = rng.uniform(0.8, 1.6, (num_muscles, 1))

    def session(
        self, seconds: float, gain: NDArray[np.float64], turn: float, rng: np.random.Generator
    ) -> NDArray[np.void]:
        """One session's table, [T]."""
        num_steps = round(seconds * SAMPLE_RATE)
        drive = _slow_curves(num_steps, _NUM_SYNERGIES, rng)  # [T, synergies] within 0 … 1
        angles = drive @ self._joints
        pull = np.concatenate([drive, 1 - drive], axis=1)  # each synergy has a muscle that opposes it
        strength = pull @ self._heard(turn) * gain
        noise = _high_pass(rng.standard_normal((num_steps, NUM_CHANNELS)), cutoff_hz=40)
        table = np.zeros(num_steps, _ROW)
        table["time"] = 1670313600.0 + np.arange(num_steps) / SAMPLE_RATE
        table["joint_angles"] = angles
        table["emg"] = noise * (0.1 + strength)
        for _ in range(max(1, int(seconds / 30))):  # inverse kinematics fails now and then
            start = int(rng.integers(0, num_steps))
            table["joint_angles"][start : start + int(rng.integers(50, 800))] = 0
        return table

    def _heard(self, turn: float) -> NDArray[np.float64]:
        """How loud each muscle is at each electrode of a band turned by so many, [muscles, 16]."""
        apart = np.abs(np.arange(NUM_CHANNELS) - self._places[:, None] - turn) % NUM_CHANNELS
        apart = np.minimum(apart, NUM_CHANNELS - apart)  # the band is round
        heard: NDArray[np.float64] = self._pulls * np.exp(-0.5 * (apart / 0.9) ** 2)
        return heard


def _slow_curves(num_steps: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Random curves below 1 Hz, [T, count] within 0 … 1."""
    knots = rng.uniform(-2.5, 2.5, (max(4, num_steps // SAMPLE_RATE * 2 + 3), count))
    places = np.linspace(0, len(knots) - 1.001, num_steps)
    before = places.astype(np.int64)
    share = 0.5 - 0.5 * np.cos(np.pi * (places - before))[:, None]  # rests at each knot
    return 1 / (1 + np.exp(-(knots[before] * (1 - share) + knots[before + 1] * share)))


def _high_pass(noise: NDArray[np.float64], *, cutoff_hz: float) -> NDArray[np.float64]:
    """Without what is slower, [T, channels]."""
    spectrum = np.fft.rfft(noise, axis=0)
    spectrum[np.fft.rfftfreq(len(noise), 1 / SAMPLE_RATE) < cutoff_hz] = 0
    return np.fft.irfft(spectrum, len(noise), axis=0)


def _write_session(path: Path, table: NDArray[np.void], facts: dict[str, str]) -> None:
    with h5py.File(path, "w") as file:
        group = file.create_group(GROUP)
        group.create_dataset(DATASET, data=table)
        group.attrs.update(
            facts
            | {
                "stage": "synthetic",
                "sample_rate": float(SAMPLE_RATE),
                "num_channels": NUM_CHANNELS,
                "start": table["time"][0],
                "end": table["time"][-1],
            }
        )
