"""How well are heart sounds segmented? Onsets of S1 and S2 against those of synthetic recordings.

    python benchmarks/segmenting.py [--quick]

Figures are F1 of onsets within 60 ms of the truth (S1 and S2 told apart), over recordings of 10 s, a third
of each kind (normal, systolic murmur, diastolic murmur) unless the row says otherwise. No clock is involved,
so they are the same everywhere. `low` and `high` are the worst and the best recording. The noise is white up
to 2 kHz: of its power only a twentieth lies where S1 and S2 are, so 0 dB of the whole is about 13 dB there.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from measuring import Report, say
from stoker.recipes.heart_sounds import (
    CLASSES,
    CycleSettings,
    onset_f1,
    read_collection,
    read_cycles,
    read_states,
    segment,
    synthesize,
    write_circor,
)

_NORMAL, _SYSTOLIC, _DIASTOLIC = ("normal",), ("systolic_murmur",), ("diastolic_murmur",)

# kinds, SNR in dB, beats a minute
CASES: dict[str, tuple[tuple[str, ...], float, tuple[float, float]]] = {
    "25 dB": (CLASSES, 25.0, (55, 110)),
    "10 dB": (CLASSES, 10.0, (55, 110)),
    "5 dB": (CLASSES, 5.0, (55, 110)),
    "0 dB": (CLASSES, 0.0, (55, 110)),
    "-5 dB": (CLASSES, -5.0, (55, 110)),
    "-10 dB": (CLASSES, -10.0, (55, 110)),
    "-15 dB": (CLASSES, -15.0, (55, 110)),
    "10 dB, normal only": (_NORMAL, 10.0, (55, 110)),
    "10 dB, systolic murmurs only": (_SYSTOLIC, 10.0, (55, 110)),
    "10 dB, diastolic murmurs only": (_DIASTOLIC, 10.0, (55, 110)),
    "10 dB, 110 to 130 beats a minute": (CLASSES, 10.0, (110, 130)),
    "10 dB, 130 to 150 beats a minute": (CLASSES, 10.0, (130, 150)),
    "10 dB, 40 to 55 beats a minute": (CLASSES, 10.0, (40, 55)),
}


def main() -> None:
    """Segment, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few recordings; nothing is written")
    quick = parser.parse_args().quick
    num_recordings = 6 if quick else 60
    report = Report("segmenting", ("numpy", "scipy"))
    for name, (kinds, snr_db, beats) in CASES.items():
        say(name)
        rng = np.random.default_rng(7)
        values = []
        for number in range(num_recordings):
            recording = synthesize(
                kinds[number % len(kinds)],
                seconds=10.0,
                rng=rng,
                snr_db=snr_db,
                beats_per_minute=float(rng.uniform(*beats)),
            )
            values.append(onset_f1(segment(recording.signal, recording.rate), recording.truth))
        report.add(name, "mean over recordings", [statistics.fmean(values)], "F1")
        report.add(name, "median, worst, best", values, "F1")
    _against_tsv(report, num_patients=2 if quick else 20)
    for row in report.rows:
        print(f"{row.workload:36} {row.system:22} {row.value:.3f}  {row.low:.3f} {row.high:.3f}")
    if not quick:
        report.write()


def _against_tsv(report: Report, *, num_patients: int) -> None:
    """The layout of CirCor: cycles found by the sound alone against those that the .tsv files say."""
    say("against .tsv files")
    with tempfile.TemporaryDirectory() as folder:
        write_circor(Path(folder), num_patients=num_patients)
        agreements, found = [], 0
        told = 0
        for entry in read_collection(Path(folder)).entries:
            if entry.labels["murmur"] == 2:  # Unknown: nothing can be heard
                continue
            assert entry.states is not None
            alone = CycleSettings(use_states=False)
            judged = read_cycles(entry.path, None, alone)
            by_hand = read_cycles(entry.path, entry.states, CycleSettings())
            found, told = found + len(judged.starts), told + len(by_hand.starts)
            truth = read_states(entry.states.read_text())
            agreements.append(onset_f1(segment(judged.signal, alone.rate), truth))
        report.add("CirCor layout, 10 to 30 dB", "mean over recordings", [statistics.fmean(agreements)], "F1")
        report.add("CirCor layout, 10 to 30 dB", "median, worst, best", agreements, "F1")
        report.add("CirCor layout, 10 to 30 dB", "cycles kept / those by .tsv", [found / told], "ratio")


if __name__ == "__main__":
    main()
