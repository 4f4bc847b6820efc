"""Synthetic data sets in the layouts that public heart-sound collections have.

folders/CLASS/0000.wav
circor/training_data.csv, circor/training_data/50001_AV.{wav,hea,tsv}, 50001.txt
cinc/training-a/a0001.{wav,hea}, REFERENCE.csv, REFERENCE-SQI.csv
pascal/set_a/*.wav, set_b/*.wav, set_a.csv, set_b.csv
"""

import csv
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.recipes.heart_sounds._synthetic import CLASSES, RATE, Recording, synthesize

_LOCATIONS = ("AV", "PV", "TV", "MV")
_CIRCOR_COLUMNS = ("Patient ID", "Recording locations:", "Age", "Sex", "Murmur", "Outcome", "Additional ID")
_PASCAL_KINDS = {"normal": "normal", "murmur": "systolic_murmur", "extrastole": "diastolic_murmur"}


def write_recordings(folder: Path, *, num_per_class: int, seed: int = 0) -> int:
    """Write mono 16-bit wav files ``folder/CLASS/NNNN.wav`` and give their number."""
    rng = np.random.default_rng(seed)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(num_per_class):
            recording = synthesize(kind, seconds=float(rng.uniform(1.5, 4.0)), rng=rng)
            _write_wav(folder / kind / f"{number:04d}.wav", recording.signal, recording.rate)
    return num_per_class * len(CLASSES)


def write_circor(folder: Path, *, num_patients: int, seconds: float = 10.0, seed: int = 0) -> int:
    """Write the layout of CirCor DigiScope, with true segmentations; gives the number of recordings.

    A third of the patients has a murmur (Present), a few are Unknown, and an outcome that mostly goes
    with it. Every tenth patient came twice: under another number, said by "Additional ID".
    """
    rng = np.random.default_rng(seed)
    data = folder / "training_data"
    data.mkdir(parents=True, exist_ok=True)
    rows, count = [], 0
    for number in range(num_patients):
        patient = 50001 + number
        murmur = str(rng.choice(["Present", "Absent", "Absent", "Unknown"], p=[0.35, 0.3, 0.3, 0.05]))
        ill = rng.random() < (0.85 if murmur == "Present" else 0.2)
        kind = "systolic_murmur" if murmur == "Present" else "normal"
        rate_bpm = float(rng.uniform(60, 110))
        locations = sorted(rng.choice(_LOCATIONS, size=int(rng.integers(1, 5)), replace=False).tolist())
        lines = [f"{patient} {len(locations)} {RATE}"]
        for location in locations:
            snr_db = -5.0 if murmur == "Unknown" else float(rng.uniform(10, 30))
            recording = synthesize(kind, seconds=seconds, rng=rng, snr_db=snr_db, beats_per_minute=rate_bpm)
            stem = f"{patient}_{location}"
            _write_wfdb(data / stem, recording)
            _write_tsv(data / f"{stem}.tsv", recording)
            lines.append(f"{location} {stem}.hea {stem}.wav {stem}.tsv")
            count += 1
        outcome = "Abnormal" if ill else "Normal"
        twin = patient - 1 if number % 10 == 9 else ""
        row = (
            patient,
            "+".join(locations),
            "Child",
            "Female" if number % 2 else "Male",
            murmur,
            outcome,
            twin,
        )
        facts = zip(_CIRCOR_COLUMNS[2:6], row[2:6], strict=True)
        lines += [f"#{name}: {value}" for name, value in facts]
        (data / f"{patient}.txt").write_text("\n".join(lines) + "\n")
        rows.append(row)
    with (folder / "training_data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([_CIRCOR_COLUMNS, *rows])
    return count


def write_cinc(folder: Path, *, num_recordings: int, seconds: float = 10.0, seed: int = 0) -> int:
    """Write the layout of PhysioNet/CinC 2016 in two of its parts; every eighth is of bad quality."""
    rng = np.random.default_rng(seed)
    rate = 2000
    for part in "ab":
        data = folder / f"training-{part}"
        data.mkdir(parents=True, exist_ok=True)
        labels = []
        for number in range(1, num_recordings // 2 + 1):
            ill, good = bool(rng.random() < 0.4), number % 8 != 0
            recording = synthesize(
                "systolic_murmur" if ill else "normal",
                seconds=seconds,
                rng=rng,
                rate=rate,
                snr_db=float(rng.uniform(12, 30)) if good else -8.0,
            )
            name = f"{part}{number:04d}"
            _write_wfdb(data / name, recording)
            labels.append((name, 1 if ill else -1, 1 if good else 0))
        with (data / "REFERENCE.csv").open("w", newline="") as file:
            csv.writer(file).writerows(row[:2] for row in labels)
        with (data / "REFERENCE-SQI.csv").open("w", newline="") as file:
            csv.writer(file).writerows(labels)
    return 2 * (num_recordings // 2)


def write_pascal(folder: Path, *, num_per_class: int, seed: int = 0) -> int:
    """Write the layout of PASCAL: set A at 44.1 kHz, set B at 4 kHz, labels in a table for each."""
    rng = np.random.default_rng(seed)
    count = 0
    for part, rate in (("a", 44100), ("b", 4000)):
        data = folder / f"set_{part}"
        data.mkdir(parents=True, exist_ok=True)
        rows = []
        for label, kind in _PASCAL_KINDS.items():
            for _ in range(num_per_class):
                recording = synthesize(kind, seconds=float(rng.uniform(3, 6)), rng=rng, rate=rate)
                count += 1
                # one person each; set B's table calls its files otherwise than they are called
                known = f"{label}__{count:012d}" if part == "a" else f"{label}__{count}_13050319_B"
                listed = known if part == "a" else f"Btraining_{label}_{count}_13050319_B"
                _write_wav(data / f"{known}.wav", recording.signal, rate)
                rows.append((part, f"set_{part}/{listed}.wav", label, ""))
        with (folder / f"set_{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("dataset", "fname", "label", "sublabel"), *rows])
    return count


def _write_wfdb(stem: Path, recording: Recording) -> None:
    """The wav file and the header that PhysioNet puts beside it."""
    _write_wav(stem.with_suffix(".wav"), recording.signal, recording.rate)
    length = len(recording.signal)
    header = f"{stem.name} 1 {recording.rate} {length}\n{stem.name}.wav 16+44 1 16 0 0 0 0 PCG\n"
    stem.with_suffix(".hea").write_text(header)


def _write_tsv(path: Path, recording: Recording) -> None:
    edges, states = recording.truth.starts_s, recording.truth.states
    rows = zip(edges[:-1], edges[1:], states, strict=True)
    path.write_text("".join(f"{start:.6f}\t{end:.6f}\t{state}\n" for start, end, state in rows))


def _write_wav(path: Path, signal: NDArray[np.float32], rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((signal * 32767).astype("<i2").tobytes())
