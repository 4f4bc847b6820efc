"""Figures as a person reads them, the same in a sentence, on the page and on a terminal."""

import math

from stoker.doctor._diagnosis import Interval

TO = "\N{EN DASH}"  # between two bounds
_TRACEBACK = "Traceback (most recent call last):"
_TIMES = "\N{MULTIPLICATION SIGN}"


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


def error_line(error: str) -> str:
    """What a traceback says, in one line: of the last exception in it, the first line of its message."""
    lines = [line for line in error.splitlines() if line.strip()]
    heads = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    after = lines[heads[-1] + 1 :] if heads else lines[:1]
    said = [line for line in after if not line.startswith(" ")] or lines[-1:]
    return said[0].strip() if said else "no reason was given"


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


def listed(words: list[str]) -> str:
    """'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
