"""Sessions, as they are or packed, as windows; and what is known of the training ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker.errors import SourceError, StoreNotFoundError
from stoker.loader import Windows
from stoker.recipes.emg_pose._layout import (
    DATASET,
    FAILED,
    GROUP,
    SAMPLE_RATE,
    SPLITS,
    Session,
    read_sessions,
)
from stoker.recipes.emg_pose._settings import EmgSettings, NormalizeSettings, WindowSettings

FIELDS = ("emg", "joint_angles")
FACTS = ("user", "session", "side", "split", "generalization")  # of a session, kept in a store


@dataclass(frozen=True)
class Statistics:
    """What the model must know of its training sessions."""

    emg_mean: tuple[float, ...]  # [16]
    emg_std: tuple[float, ...]  # [16], 1 for an electrode that says nothing
    angle_mean: tuple[float, ...]  # [20], rad


@dataclass(frozen=True)
class Collection:
    """Sessions, of a folder or of a store; where `store` is set, the i-th session is its i-th sample."""

    sessions: tuple[Session, ...]
    store: stoker.Store | None = None

    def windows(
        self,
        split: str,
        settings: WindowSettings,
        *,
        train: bool = False,
        skip_failed: bool | None = None,
        fields: Sequence[str] = FIELDS,
    ) -> tuple[Windows, tuple[Session, ...]]:
        """Windows [C, T] over the sessions of a split (or "all"), and these sessions in its order.

        Windows for training are jittered; the others lie end to end unless a stride is set.
        """
        chosen = [i for i, each in enumerate(self.sessions) if split in ("all", each.split)]
        if not chosen:
            counts = Counter(each.split for each in self.sessions)
            there_are = ", ".join(f"{counts[name]} for {name}" for name in SPLITS)
            raise SourceError(
                f"there must be a session for {split!r}, and there are {there_are}; say who is for what in "
                f"metadata.csv, or bring sessions of at least three users"
            )
        sessions = tuple(self.sessions[i] for i in chosen)
        skip = settings.skip_failed if skip_failed is None else skip_failed
        source: Any = [each.path for each in sessions] if self.store is None else self.store.select(chosen)
        view = stoker.windows(
            source,
            length=settings.length,
            stride=settings.stride,
            padding=settings.padding,
            jitter=settings.training_jitter if train else 0,
            skip=FAILED if skip else None,
            fields=fields,
            channels_first=True,
            chunk_cache_bytes=settings.chunk_cache_bytes,
            group=GROUP if self.store is None else None,
            dataset=DATASET if self.store is None else None,
        )
        return view, sessions


def open_collection(data: Path) -> Collection:
    """The sessions of a folder in the emg2pose layout, or of a store that was packed of one."""
    try:
        store = stoker.open(data)
    except StoreNotFoundError:
        return Collection(read_sessions(data)[0])
    missing = [name for name in (*FIELDS, *FACTS) if name not in store.fields]
    if missing:
        raise SourceError(
            f"{data} is a store of something else: it has no field {missing[0]!r}; "
            f"stoker pack --recipe emg-pose makes one of sessions"
        )
    facts = zip(*(store.column(name) for name in FACTS), strict=True)
    return Collection(
        tuple(Session(Path(store.key(i)), *map(str, each)) for i, each in enumerate(facts)), store
    )


def fit_statistics(collection: Collection, settings: EmgSettings) -> Statistics:
    """Of the training sessions' steps at which the pose is known: all, or evenly spread windows of them."""
    view, _ = collection.windows("train", settings.windows, skip_failed=True)
    with view:
        found = view.statistics(num_windows=_num_windows(view, settings.normalize, settings.windows.length))
    mean, std = (np.array(each) for each in (found["emg"].mean, found["emg"].std))
    if settings.normalize.method == "none":
        mean, std = np.zeros_like(mean), np.ones_like(std)
    return Statistics(
        tuple(mean.tolist()),
        tuple(np.where(std > 0, std, 1.0).tolist()),
        tuple(float(each) for each in found["joint_angles"].mean),
    )


def describe(sessions: Sequence[Session], num_steps: int) -> dict[str, Any]:
    """Counts to be shown."""
    splits = Counter(each.split for each in sessions)
    return {
        "sessions": len(sessions),
        "users": len({each.user for each in sessions}),
        "hours": round(num_steps / SAMPLE_RATE / 3600, 3),
        **{f"sessions for {name}": splits[name] for name in SPLITS},
    }


def _num_windows(view: Windows, settings: NormalizeSettings, length: int) -> int | None:
    if settings.method == "exact":
        return None
    return max(1, view.num_sessions * settings.max_samples // length)
