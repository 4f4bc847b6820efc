"""The phases of a run, and when each is over."""

from dataclasses import dataclass

WATCHED_STEPS = (1, 2)  # in which the finder looks at what a step calls; the first may still compile
FIRST_STEPS = WATCHED_STEPS[-1] + 2  # the least that warm-up needs for it

ENDLESS = 1 << 62


@dataclass(frozen=True)
class Goal:
    """How long a phase lasts: so many steps, or so many seconds if that is sooner and the least is done.

    `min_steps`, the least, is at most `num_steps`.
    """

    phase: str
    num_steps: int
    min_steps: int
    max_s: float

    def is_reached(self, num_steps: int, seconds: float) -> bool:
        """True after so many steps in so many seconds of the phase."""
        return num_steps >= self.num_steps or (num_steps >= self.min_steps and seconds >= self.max_s)


def warmup(num_steps: int) -> Goal:
    """Steps that are not measured: caches, compilers and our own finding out."""
    return Goal("warmup", max(num_steps, FIRST_STEPS), FIRST_STEPS, 20.0)


def normal(num_steps: int, *, num_buffered: int) -> Goal:
    """The measured steps: more than the batches that may lie ready, or a full buffer hides starvation."""
    least = max(num_steps, num_buffered + 4)
    return Goal("normal", least, min(least, 8), 40.0)


def watch(num_steps: int) -> Goal:
    """The measured steps of a run that is only watched."""
    return Goal("normal", num_steps, num_steps, 0.0)


def look_every(step_s: float, *, is_passive: bool) -> float:
    """Seconds between two looks of the stack sampler: at most three a step, each of some 25 microseconds.

    A run that is only watched has more steps, and is somebody's work: it is looked at half as often.
    """
    return max(0.01 if is_passive else 0.005, step_s / 3)


def profile() -> Goal:
    """A few steps whose operators are counted. Not measured: counting takes time."""
    return Goal("profile", 3, 1, 20.0)


def settle() -> Goal:
    """Steps from the buffer while workers, no longer asked for anything, come to rest."""
    return Goal("settle", 5000, 2, 6.0)


def replay(phase: str, num_steps: int) -> Goal:
    """Steps with batches that are given again."""
    return Goal(phase, max(8, num_steps // 3), 4, 10.0)


def refill(num_kept: int) -> Goal:
    """Steps in which every kept batch is copied to the device once more, and then no more."""
    return Goal("settle", num_kept + 1, num_kept + 1, 0.0)
