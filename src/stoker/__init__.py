"""Stoker keeps the accelerator fed.

Names are imported when they are first used, so that ``import stoker`` is light: no torch, no HDF5.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker import augment as augment
    from stoker import doctor as doctor
    from stoker.loader import Loader as Loader
    from stoker.loader import ViewCache as ViewCache
    from stoker.loader import cache as cache
    from stoker.loader import windows as windows
    from stoker.store import Store as Store
    from stoker.store import open_store as open  # noqa: A004 - stoker.open reads as it should
    from stoker.store import pack as pack
    from stoker.train import Trainer as Trainer

__version__ = "0.1.0"

_HOMES = {
    "Loader": ("stoker.loader", "Loader"),
    "Store": ("stoker.store", "Store"),
    "Trainer": ("stoker.train", "Trainer"),
    "ViewCache": ("stoker.loader", "ViewCache"),
    "augment": ("stoker.augment", None),
    "cache": ("stoker.loader", "cache"),
    "doctor": ("stoker.doctor", None),
    "open": ("stoker.store", "open_store"),
    "pack": ("stoker.store", "pack"),
    "windows": ("stoker.loader", "windows"),
}

__all__ = [
    "Loader",
    "Store",
    "Trainer",
    "ViewCache",
    "__version__",
    "augment",
    "cache",
    "doctor",
    "open",
    "pack",
    "windows",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    home, attribute = _HOMES[name]
    module = importlib.import_module(home)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
