"""What is asked of a recording: which label, in which layout, and which class is the alarm."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One downstream task."""

    layout: str  # of the collection that has such labels
    field: str  # of a sample, with the number of its class
    alarm: str | None  # the class that a threshold is chosen for; None: the second of two classes


TASKS: Mapping[str, Question] = {
    "circor-murmur": Question("circor", "murmur", "Present"),
    "circor-outcome": Question("circor", "outcome", "Abnormal"),
    "physionet2016": Question("cinc", "y", "abnormal"),
    "pascal": Question("pascal", "y", "murmur"),
    "folders": Question("folders", "y", None),
}
