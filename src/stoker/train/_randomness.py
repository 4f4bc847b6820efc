"""The states of all generators that a training step may draw from: Python's, numpy's, torch's, CUDA's."""

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed them all."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - whoever uses numpy's global generator means this one
    torch.manual_seed(seed)  # all CUDA devices too


def random_state() -> dict[str, Any]:
    """Where they stand, as tensors and numbers; only the current CUDA device of several."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 - likewise
    kind, keys, position, has_gauss, gauss = numpy_state
    on_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if on_cuda else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put them where they stood."""
    version, numbers, gauss_next = state["python"]
    random.setstate((version, tuple(numbers), gauss_next))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Whatever is drawn inside, afterwards they stand where they stood."""
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)
