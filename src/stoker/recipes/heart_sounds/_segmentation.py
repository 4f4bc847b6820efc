"""Where S1, systole, S2 and diastole lie, from the sound alone.

The four states follow one another for ever, each lasts about as long as it does at this heart rate,
and S1 and S2 are loud where systole and diastole are not. The most likely sequence of states under
these three statements is found by dynamic programming over (state, end), a hidden semi-Markov model
whose durations come from the recording itself:

1. the envelope of 25 to 120 Hz, where valves are and most of a murmur is not, at 100 frames a second;
2. the cycle's length from the envelope's autocorrelation between 0.4 and 1.5 s; the systole's from
   its highest peak between 0.15 s and 0.6 of a cycle;
3. a frame's evidence for "sound" is its rank among all frames, so that loudness and slow changes of it
   do not matter.

    states: 1 S1, 2 systole, 3 S2, 4 diastole (CirCor's numbers; 0 is "not annotated")
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

S1, SYSTOLE, S2, DIASTOLE = 1, 2, 3, 4

_FRAMES_PER_S = 100
_BAND_HZ = (25.0, 120.0)
_CYCLE_S = (0.4, 1.5)  # 150 to 40 beats a minute
_S1_S, _S2_S = 0.12, 0.10  # usual lengths of the two sounds
_SPREAD = {S1: 0.2, SYSTOLE: 0.15, S2: 0.2, DIASTOLE: 0.25}  # standard deviation over mean
_LOOKED_LENGTHS = 3.0  # standard deviations of a state's length that are tried


@dataclass(frozen=True)
class Segmentation:
    """Consecutive states of a recording.

    starts_s [n + 1] are the states' starts and the end of the last, states [n] their numbers.
    """

    starts_s: NDArray[np.float64]
    states: NDArray[np.int64]

    def cycles(self) -> NDArray[np.float64]:
        """Whole cycles as [k, 5]: starts of S1, systole, S2, diastole, and of the next S1, in seconds."""
        firsts = [
            i
            for i in range(len(self.states) - 3)
            if tuple(self.states[i : i + 4]) == (S1, SYSTOLE, S2, DIASTOLE)
        ]
        rows = [self.starts_s[i : i + 5] for i in firsts]
        return np.array(rows, np.float64).reshape(-1, 5)

    def onsets(self, state: int) -> NDArray[np.float64]:
        """When this state begins, each time, in seconds."""
        onsets: NDArray[np.float64] = self.starts_s[:-1][self.states == state]
        return onsets


def segment(signal: NDArray[np.floating], rate: int) -> Segmentation:
    """Segment a recording, float [T] at `rate` Hz, of at least two cycles; else nothing is found.

    The first and the last state are those that the recording cuts through.
    """
    require_scipy()
    envelope = _envelope(signal, rate)
    nothing = Segmentation(np.zeros(1), np.zeros(0, np.int64))
    if len(envelope) < 2 * _CYCLE_S[0] * _FRAMES_PER_S or not np.ptp(envelope) > 0:
        return nothing
    cycle_s, systole_s = _rhythm(envelope)
    means = {
        S1: _S1_S,
        SYSTOLE: max(0.06, systole_s - _S1_S),
        S2: _S2_S,
        DIASTOLE: max(0.08, cycle_s - systole_s - _S2_S),
    }
    states, starts = _most_likely(_evidence(envelope, means), means)
    return Segmentation(starts / _FRAMES_PER_S, states)


def onset_f1(found: Segmentation, truth: Segmentation, *, tolerance_s: float = 0.06) -> float:
    """How well the onsets of S1 and S2 agree: F1 of pairs within the tolerance, each onset in one pair.

    An S1 taken for an S2 is wrong twice. Onsets at the recording's very beginning are those of sounds
    that it cuts through, and do not count.
    """
    pairs, num_found, num_true = 0, 0, 0
    for state in (S1, S2):
        ours, theirs = (each.onsets(state) for each in (found, truth))
        ours, theirs = ours[ours > 0], theirs[theirs > 0]
        num_found, num_true = num_found + len(ours), num_true + len(theirs)
        i = j = 0
        while i < len(ours) and j < len(theirs):
            if abs(ours[i] - theirs[j]) <= tolerance_s:
                pairs, i, j = pairs + 1, i + 1, j + 1
            elif ours[i] < theirs[j]:
                i += 1
            else:
                j += 1
    return 2 * pairs / max(num_found + num_true, 1)


def require_scipy() -> None:
    """Refuse to go on without it, by a name that pip knows."""
    try:
        import scipy.signal  # noqa: F401
    except ImportError as error:
        from stoker.errors import MissingExtraError

        raise MissingExtraError("segmenting heart sounds", extra="audio", library="scipy") from error


def read_states(text: str) -> Segmentation:
    """The segmentation in a CirCor .tsv: start, end and state a line; state 0, and a gap, is no state."""
    edges: list[float] = [0.0]
    states: list[int] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        start, end, state = (float(word) for word in line.split())
        if start > edges[-1] + 1e-3 and states:  # nobody said what is between two lines
            edges.append(start)
            states.append(0)
        elif not states:
            edges[0] = start
        edges.append(end)
        states.append(int(state))
    return Segmentation(np.array(edges), np.array(states, np.int64))


def _envelope(signal: NDArray[np.floating], rate: int) -> NDArray[np.float64]:
    """The band's amplitude, [frames], smoothed over 40 ms."""
    import scipy.ndimage
    import scipy.signal

    x = np.asarray(signal, np.float64)
    if len(x) < rate * _CYCLE_S[0]:
        return np.zeros(0)
    high = min(_BAND_HZ[1], 0.45 * rate)
    sections = scipy.signal.butter(2, [_BAND_HZ[0], high], "bandpass", fs=rate, output="sos")
    band = scipy.signal.sosfiltfilt(sections, x - x.mean())
    power = scipy.ndimage.gaussian_filter1d(band**2, 0.02 * rate)
    hop = rate / _FRAMES_PER_S
    places = ((np.arange(int(len(x) / hop)) + 0.5) * hop).astype(np.int64)
    return np.sqrt(np.maximum(power[places], 0))


def _rhythm(envelope: NDArray[np.float64]) -> tuple[float, float]:
    """Length of a cycle and from S1 to S2, in seconds."""
    import scipy.ndimage
    import scipy.signal

    loud = np.log(envelope + 0.05 * np.quantile(envelope, 0.95) + 1e-12)
    centred = loud - scipy.ndimage.uniform_filter1d(loud, 2 * _FRAMES_PER_S)
    likeness = scipy.signal.correlate(centred, centred, method="fft")[len(centred) - 1 :]
    likeness = likeness / np.arange(len(centred), 0, -1)  # each lag by as many products as it has
    low, high = (round(edge * _FRAMES_PER_S) for edge in _CYCLE_S)
    high = min(high, len(likeness) // 2 + 1)
    cycle = low + int(np.argmax(likeness[low:high]))
    first, last = round(0.15 * _FRAMES_PER_S), max(round(0.6 * cycle), round(0.15 * _FRAMES_PER_S) + 1)
    inside = likeness[first : last + 1]
    peaks, _ = scipy.signal.find_peaks(inside)
    systole = first + int(peaks[np.argmax(inside[peaks])] if len(peaks) else np.argmax(inside))
    if systole > cycle / 2:  # from S2 to the next S1: the same peak, seen from the other side
        systole = cycle - systole
    return cycle / _FRAMES_PER_S, max(systole, first) / _FRAMES_PER_S


def _evidence(envelope: NDArray[np.float64], means: dict[int, float]) -> NDArray[np.float64]:
    """Log-likelihood of each frame under each state, [4, frames]."""
    import scipy.ndimage

    share = (means[S1] + means[S2]) / sum(means.values())  # of frames that should be loud
    window = 2 * round(2.0 * sum(means.values()) * _FRAMES_PER_S) + 1
    # what is far below the sounds is all the same: a murmur out of silence must not pass for a sound
    loud = np.log(envelope + 1e-12 + 0.1 * np.quantile(envelope, 0.95))
    high = scipy.ndimage.percentile_filter(loud, 100 * (1 - share / 3), size=window, mode="nearest")
    low = scipy.ndimage.percentile_filter(loud, 30, size=window, mode="nearest")
    place = (loud - low) / np.maximum(high - low, 1e-3)  # 0: background, 1: as loud as sounds are
    sound = 1 / (1 + np.exp(-8 * (place - 0.55)))
    sound = np.clip(sound, 0.02, 0.98)
    return np.stack([np.log(sound), np.log(1 - sound), np.log(sound), np.log(1 - sound)])


def _most_likely(
    evidence: NDArray[np.float64], means: dict[int, float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The best sequence of states, and their starts in frames with the end behind them.

    best[s, t]: log-likelihood of frames 0 … t-1 when a state s ends just before t. The first and the
    last state may be cut, so they may be shorter than they should at no cost.
    """
    num_states, num_frames = evidence.shape
    total = np.concatenate([np.zeros((num_states, 1)), np.cumsum(evidence, axis=1)], axis=1)
    choices = [_lengths(means[state], _SPREAD[state]) for state in (S1, SYSTOLE, S2, DIASTOLE)]
    lengths, priors = zip(*choices, strict=True)
    best = np.full((num_states, num_frames + 1), -np.inf)
    length_of = np.zeros((num_states, num_frames + 1), np.int64)
    for end in range(1, num_frames + 1):
        for state in range(num_states):
            tried = lengths[state][: np.searchsorted(lengths[state], end, side="right")]
            score, chosen = -np.inf, end
            if len(tried):
                starts = end - tried
                scores = best[state - 1, starts] + priors[state][: len(tried)] - total[state, starts]
                place = int(np.argmax(scores))
                score, chosen = scores[place], int(tried[place])
            if end <= lengths[state][-1] and -total[state, 0] > score:  # the recording begins within it
                score, chosen = -total[state, 0] + priors[state].max(), end
            best[state, end] = score + total[state, end]
            length_of[state, end] = chosen
    state, end = _last(best, total, lengths, priors)
    found = [(state, num_frames)]
    while end > 0:
        state = (state - 1) % num_states
        found.append((state, end))
        end -= int(length_of[state, end])
    found.reverse()
    states = np.array([state + 1 for state, _ in found], np.int64)
    return states, np.array([0, *(stop for _, stop in found)], np.float64)


def _last(
    best: NDArray[np.float64],
    total: NDArray[np.float64],
    lengths: tuple[NDArray[np.int64], ...],
    priors: tuple[NDArray[np.float64], ...],
) -> tuple[int, int]:
    """The state in which the recording ends, which may be cut short, and where it begins."""
    num_frames = best.shape[1] - 1
    choices = []
    for state in range(len(best)):
        starts = np.arange(max(0, num_frames - int(lengths[state][-1])), num_frames)
        scores = (
            best[state - 1, starts] + total[state, num_frames] - total[state, starts] + priors[state].max()
        )
        place = int(np.argmax(scores))
        choices.append((float(scores[place]), state, int(starts[place])))
    _, state, start = max(choices)
    return state, start


def _lengths(mean_s: float, spread: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Lengths in frames that a state may have, rising, and their log-likelihood."""
    mean, deviation = mean_s * _FRAMES_PER_S, max(spread * mean_s * _FRAMES_PER_S, 1.5)
    low = max(2, int(mean - _LOOKED_LENGTHS * deviation))
    lengths = np.arange(low, int(mean + _LOOKED_LENGTHS * deviation) + 2)
    return lengths, -0.5 * ((lengths - mean) / deviation) ** 2 - np.log(deviation)
