"""Batches of windows over sessions, as the recipes' settings describe them."""

from collections.abc import Callable
from typing import Any

import numpy as np

import stoker
from stoker.config import usable_cores
from stoker.loader import Windows
from stoker.recipes._settings import WindowRecipeSettings


def window_loader(
    view: Windows,
    settings: WindowRecipeSettings,
    *,
    device: Any,
    shuffle: bool = False,
    augment: Callable[..., Any] | None = None,
    alone: bool = False,
) -> stoker.Loader:
    """Batches of windows; `alone` gives this process all of them, whatever other ranks there are."""
    loading, size = settings.loading, settings.training.batch_size
    row_bytes = 8 + sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in view.fields.values())
    ahead = ((loading.num_workers or usable_cores()) * loading.prefetch + 1) * size * row_bytes
    return stoker.Loader(
        view,
        batch_size=size,
        shuffle=shuffle,
        seed=settings.seed,
        device=device,
        augment=augment,
        num_workers=loading.num_workers,
        memory_bytes=ahead if loading.memory_bytes is None else loading.memory_bytes,
        rank=0 if alone else None,
        world_size=1 if alone else None,
    )
