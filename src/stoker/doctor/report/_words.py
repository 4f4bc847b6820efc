"""How figures, stages and verdicts are said, the same on the page and on a terminal."""

import math
from collections.abc import Iterable
from pathlib import PurePath

from stoker.doctor._diagnosis import Interval
from stoker.doctor._record import STAGES, Phase, Place, Record, Stage

STAGE_NAMES: dict[Stage, str] = {
    "wait": "waiting for data",
    "copy": "copy to device",
    "augment": "augmentation",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "everything else",
}
PHASE_NAMES: dict[Phase, str] = {
    "warmup": "warm-up",
    "normal": "as it is",
    "host": "replay: batches ready",
    "device": "replay: batches on the device",
}
VERDICT_MEANINGS = {
    "input-bound": "the model waits for data",
    "copy-bound": "the copy to the device holds it up",
    "compute-bound": "the model itself is the limit",
    "python-bound": "Python holds the device up",
    "mixed": "no single part is to blame",
    "nothing observed": "no training step was seen",
}

NOTHING = TO = "\N{EN DASH}"  # what stands for a figure that there is not; between two bounds
MINUS = "\N{MINUS SIGN}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def stage_name(stage: str) -> str:
    """A stage in words; one we have no words for keeps its name."""
    return {str(key): name for key, name in STAGE_NAMES.items()}.get(stage, stage)


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they follow one another in a step, those we have no words for last."""
    order = [str(stage) for stage in STAGES]
    return sorted(stages, key=lambda stage: order.index(stage) if stage in order else len(order))


def duration(seconds: float) -> str:
    """Seconds with three significant digits and a fitting unit."""
    size = abs(seconds)
    if not math.isfinite(seconds):
        return "unknown"
    if size >= 99.95:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    if size >= 0.9995:
        return f"{_three_digits(seconds)} s"
    if size >= 0.9995e-3:
        return f"{_three_digits(seconds * 1e3)} ms"
    return "0 ms" if size < 5e-10 else f"{_three_digits(seconds * 1e6)} µs"


def percent(share: float) -> str:
    """A share of one; small ones keep a digit that says something."""
    figure = share * 100
    if figure == 0 or abs(figure) >= 9.95:
        return f"{figure:.0f} %"
    if abs(figure) < 0.01:
        return "< 0.01 %"
    return f"{figure:.1f} %" if abs(figure) >= 0.1 else f"{figure:.2f} %"


def times(speedup: float) -> str:
    """A speed-up: `2.71` and a cross; past ten without decimals."""
    return f"{speedup:.2f}{_TIMES}" if speedup < 9.995 else f"{speedup:,.0f}{_TIMES}"


def times_range(speedup: Interval) -> str:
    """The range a speed-up may lie in."""
    return f"{times(speedup.low).removesuffix(_TIMES)}{TO}{times(speedup.high)}"


def size(num_bytes: float) -> str:
    """Bytes as a person reads them."""
    amount = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(amount) < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count(number: float) -> str:
    """A number with thousands apart; small ones keep decimals."""
    return f"{number:,.0f}" if number >= 100 or number == round(number) else _three_digits(number)


def place_name(place: Place, record: Record) -> str:
    """`train.py:41`, counted from the user's own folder where the file lies in it."""
    file = PurePath(place.file)
    if record.user_root and file.is_relative_to(record.user_root):
        file = file.relative_to(record.user_root)
    return f"{file}:{place.line}"


def plain(text: str, *, keep: str = "\n") -> str:
    """Text whose control characters can't move a cursor, reverse what is read or hide what follows.

    The rest of a terminal sequence stays readable: that is a sign, and harmless.
    """
    return "".join(
        character if character.isprintable() or character in keep or character in _SPACES else _UNPRINTABLE
        for character in text
    )


def short_command(command: list[str], *, limit: int = 160) -> str:
    """The command in one line, cut where it is too long to be read."""
    whole = plain(" ".join(command)).replace("\n", " ")
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def error_line(error: str) -> str:
    """The last line of a traceback that says something."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
