"""Where the sounds are: against the truth of synthetic recordings."""

import sys

import numpy as np
import pytest

from stoker.errors import MissingExtraError
from stoker.recipes.heart_sounds import CLASSES, Segmentation, onset_f1, read_states, segment, synthesize


def test_s1_and_s2_are_found_within_60_ms_at_10_db() -> None:
    rng = np.random.default_rng(3)
    recordings = [synthesize(kind, seconds=8.0, rng=rng, snr_db=10.0) for kind in CLASSES for _ in range(3)]
    scores = [onset_f1(segment(each.signal, each.rate), each.truth) for each in recordings]
    assert np.mean(scores) >= 0.95, scores


@pytest.mark.parametrize("beats", [45.0, 125.0])
def test_slow_and_fast_hearts_are_followed(beats: float) -> None:
    recording = synthesize("normal", seconds=8.0, rng=np.random.default_rng(0), beats_per_minute=beats)
    assert onset_f1(segment(recording.signal, recording.rate), recording.truth) >= 0.9


def test_a_segmentation_covers_the_recording_with_states_in_their_order() -> None:
    recording = synthesize("systolic_murmur", seconds=6.0, rng=np.random.default_rng(1), rate=2000)
    found = segment(recording.signal, recording.rate)
    assert found.starts_s[0] == 0
    assert found.starts_s[-1] == pytest.approx(6.0, abs=0.02)
    assert (np.diff(found.starts_s) > 0).all()
    assert ((np.diff(found.states) == 1) | ((found.states[:-1] == 4) & (found.states[1:] == 1))).all()
    cycles = found.cycles()
    assert cycles.shape[1] == 5
    assert (np.diff(cycles, axis=1) > 0).all()


@pytest.mark.parametrize(
    "signal", [np.zeros(8000), np.zeros(100), np.ones(8000)], ids=["silent", "short", "flat"]
)
def test_nothing_is_found_where_nothing_is(signal: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert len(segment(signal, 2000).cycles()) == 0


def test_a_tsv_is_read_with_its_gaps() -> None:
    text = "0.0\t0.5\t0\n0.5\t0.6\t1\n0.6\t0.8\t2\n0.8\t0.9\t3\n0.9\t1.3\t4\n1.5\t1.6\t1\n"
    found = read_states(text)
    assert found.states.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert found.cycles().tolist() == [[0.5, 0.6, 0.8, 0.9, 1.3]]
    assert len(read_states("").cycles()) == 0


def test_an_onset_counts_once_and_only_as_what_it_is() -> None:
    truth = Segmentation(np.array([0.0, 0.5, 0.6, 0.8, 0.9, 1.3]), np.array([4, 1, 2, 3, 4]))
    swapped = Segmentation(truth.starts_s, np.array([2, 3, 4, 1, 2]))
    late = Segmentation(truth.starts_s + 0.05, truth.states)
    assert onset_f1(truth, truth) == 1
    assert onset_f1(late, truth) == 1
    assert onset_f1(late, truth, tolerance_s=0.04) == 0
    assert onset_f1(swapped, truth) == 0


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    with pytest.raises(MissingExtraError, match=r"stoker\[audio\]"):
        segment(np.zeros(4000), 2000)
