"""The loader: from a store to batches on the device.

_permutation.py  the order as a function      _order.py   kinds of order (pure)
_plan.py         who reads what when (pure)   _state.py   where a loader stands
_readers.py      one gather a field           _slots.py   buffers, used again when free
_blocks.py       threads reading ahead        _collate.py samples of unequal size
_device.py       copies to the device         _loader.py  all of it together
"""

from stoker.loader._loader import Loader
from stoker.loader._order import balanced_weights
from stoker.loader._windows import Windows, windows

__all__ = ["Loader", "Windows", "balanced_weights", "windows"]
