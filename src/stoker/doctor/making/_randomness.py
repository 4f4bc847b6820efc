"""The random state of the process: kept, set, and watched for use."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def keep_randomness(dataloader: Any) -> Iterator[None]:
    """Whatever happens inside, Python, NumPy, torch and the loader's own generators go on as before."""
    import torch

    owners = [dataloader, dataloader.sampler, dataloader.batch_sampler]
    owners.append(getattr(dataloader.batch_sampler, "sampler", None))
    generators = {
        id(generator): generator
        for owner in owners
        if isinstance(generator := getattr(owner, "generator", None), torch.Generator)
    }
    generators[id(torch.default_generator)] = torch.default_generator
    states = [(generator, generator.get_state()) for generator in generators.values()]
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is the user's state
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        for generator, state in states:
            generator.set_state(state)


def set_seed(seed: int) -> None:
    """Seed Python, NumPy and torch on the host; devices keep their state."""
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)


def random_state() -> tuple[object, ...]:
    """Something that compares equal for as long as nobody draws; takes some 20 microseconds."""
    import torch

    legacy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    numbers = legacy["state"]
    torchs = torch.default_generator.get_state().numpy().tobytes()
    return random.getstate(), bytes(numbers["key"]), numbers["pos"], legacy["has_gauss"], torchs
