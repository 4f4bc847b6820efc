"""How figures, stages and verdicts are said, the same on the page and on a terminal."""

from collections.abc import Iterable
from pathlib import PurePath

from stoker.doctor._diagnosis import Advice
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

NOTHING = "\N{EN DASH}"  # what stands for a figure that there is not
MINUS = "\N{MINUS SIGN}"
_SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def stage_name(stage: str) -> str:
    """A stage in words; one we have no words for keeps its name."""
    return {str(key): name for key, name in STAGE_NAMES.items()}.get(stage, stage)


OVERLAP = (
    "Shares are of a step's time. Causes overlap: slow samples and too few workers are two sides of one "
    "wait, and either would cure it. So they may add up to more than 100 %."
)


def training_words(advice: Advice) -> str:
    """Whether following the advice changes what is learned."""
    if advice.changes_order_only:
        return "changes the order of samples"
    return "changes training" if advice.changes_training else "training stays the same"


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they follow one another in a step, those we have no words for last."""
    order = [str(stage) for stage in STAGES]
    return sorted(stages, key=lambda stage: order.index(stage) if stage in order else len(order))


def place_name(place: Place, record: Record) -> str:
    """`train.py:41`, from the folder that the script was started in, or else from the user's own."""
    file = PurePath(place.file)
    for folder in (record.started_in, record.user_root):
        if folder and file.is_relative_to(folder):
            file = file.relative_to(folder)
            break
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
