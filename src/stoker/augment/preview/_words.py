"""What was drawn for one sample, as lines of text."""

import textwrap
from collections.abc import Mapping, Sequence

from torch import Tensor

from stoker.augment._draws import Draws
from stoker.augment._pipeline import Pipeline
from stoker.augment._transform import Mixing, Transform

_MOST_NUMBERS = 6  # of a vector, before nobody reads on


def drawn_words(pipeline: Pipeline, draws: Draws, row: int, names: Sequence[str]) -> list[str]:
    """One text for each transform that the sample in this row gets; `names` are those of all rows."""
    words = []
    num_mixing = 0
    transforms = [transform for transform in pipeline.transforms if isinstance(transform, Transform)]
    for transform, drawn in zip(transforms, pipeline.explain(draws), strict=True):
        parts = [
            f"{name} {number_words(drawn[name][row])}"
            for name in transform.draws
            if _matters(transform, name)
        ]
        if isinstance(transform, Mixing):
            parts.insert(0, f"with {names[int(draws.partners[row, num_mixing])]}")
            num_mixing += 1
        if drawn["chosen"][row]:
            words.append(f"{type(transform).__name__}  {', '.join(parts)}".rstrip())
    return words or ["unchanged"]


def added_words(
    before: Mapping[str, object], after: Mapping[str, object], labels: Sequence[str], row: int
) -> list[str]:
    """What the batch has besides: labels that are not what they were, and small new fields."""
    words = []
    for name, value in after.items():
        if not isinstance(value, Tensor) or value[row].numel() > 32:
            continue
        old = before.get(name)
        if old is None:
            words.append(f"{name} = {number_words(value[row])}")
        elif name in labels and isinstance(old, Tensor):
            now = label_words(value[row])
            words += [f"{name} = {now}"] if now != label_words(old[row]) else []
    return words


def label_words(value: Tensor) -> str:
    """A class number, a value, or the classes of a soft or multiple target with their shares."""
    if value.ndim == 0:
        return number_words(value)
    flat = value.flatten()
    shares = {place: float(share) for place, share in enumerate(flat.tolist()) if abs(share) > 5e-4}
    if value.ndim > 1 or len(shares) > _MOST_NUMBERS:
        return number_words(flat)
    if all(share == 1 for share in shares.values()):
        return " and ".join(f"class {place}" for place in shares) or "no class"
    return " + ".join(f"{share:.3g} · class {place}" for place, share in shares.items())


def number_words(value: Tensor) -> str:
    """A number, or the first few of several."""
    flat = value.detach().cpu().flatten()
    shown = [_number(number) for number in flat[:_MOST_NUMBERS].tolist()]
    return " ".join([*shown, "…"] if flat.numel() > _MOST_NUMBERS else shown)


def wrapped(lines: Sequence[str], num_characters: int) -> list[str]:
    """The lines, none longer than that; what was one is indented from its second on."""
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, max(16, num_characters), subsequent_indent="  ") or [""]
    ]


def _number(number: float | bool) -> str:  # noqa: FBT001 - whatever a tensor holds
    whole = float(number).is_integer()
    return f"{number:.0f}" if whole and abs(number) < 1e6 else f"{number:.3g}"


def _matters(transform: Transform, name: str) -> bool:
    """Whether a parameter can be anything but neutral."""
    declared = transform.draws[name]
    bounds = (declared[0] if isinstance(declared, tuple) else declared).bounds
    return set(bounds) != {transform.neutral.get(name)}
