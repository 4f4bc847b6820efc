"""Figures as a person reads them."""


def duration(seconds: float) -> str:
    """'41 ms', '1.2 s', '850 µs'."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def percent(share: float) -> str:
    """'41 %'."""
    return f"{share * 100:.0f} %"


def count(number: float) -> str:
    """'1,200'."""
    return f"{number:,.0f}"


def size(num_bytes: float) -> str:
    """'1.5 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def listed(words: list[str]) -> str:
    """'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
