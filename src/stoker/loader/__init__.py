"""The loader: from a store to batches on the device.

_permutation.py  the order as a function      _order.py   kinds of order (pure)
_plan.py         who reads what when (pure)   _state.py   where a loader stands
_readers.py      one gather a field           _copying.py how rows are copied (_copy_kernel.py: compiled)
_slots.py        buffers, used again when free
_blocks.py       threads reading ahead        _collate.py samples of unequal size
_device.py       copies to the device         _loader.py  all of it together
_cache.py        a slow Dataset, computed once (over _cache_*.py)
_decoded.py      a compressed store, decoded  _views.py   augmented views made ahead
_tune.py         settings by a few trials     _tune_model.py what leads them (pure)
_windows.py      windows over long sessions (over _*session*.py, _*tracks.py, _window_*.py)
"""

from stoker.loader._cache import Cached, CacheStats, cache
from stoker.loader._decoded import decoded
from stoker.loader._loader import Batches, Loader
from stoker.loader._order import balanced_weights
from stoker.loader._views import ViewCache
from stoker.loader._windows import Windows, windows

__all__ = [
    "Batches",
    "CacheStats",
    "Cached",
    "Loader",
    "ViewCache",
    "Windows",
    "balanced_weights",
    "cache",
    "decoded",
    "windows",
]
