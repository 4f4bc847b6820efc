"""The store: raw data packed once into HDF5 shards, complete or absent, proving its own integrity.

sources/          raw files as samples
_pack*.py         packing                  _workers.py   its processes
_feed.py          source + transform       _plan.py      what is left to do (pure)
_samples.py       what a sample is         _identity.py  which transform it went through
_shard*.py        one file of samples      _layout.py    HDF5 read around libhdf5
_index.py         the order of samples     _manifest.py  what a store is
_publish.py       making it so             _splits.py    named splits (pure)
_moments.py       statistics               _verify.py, _repair.py, _compact.py
_store.py         reading it               remote/       stores at a URL
_stacked.py       all shards as one array  _memory.py    what is copied into
"""

from stoker.store._compact import Compacted, compact
from stoker.store._manifest import FieldSpec, FieldStats, Manifest
from stoker.store._pack import pack
from stoker.store._repair import Repaired, repair
from stoker.store._store import Store, open_store
from stoker.store._verify import Report, verify
from stoker.store.remote import Pushed, RemoteStore, push

__all__ = [
    "Compacted",
    "FieldSpec",
    "FieldStats",
    "Manifest",
    "Pushed",
    "RemoteStore",
    "Repaired",
    "Report",
    "Store",
    "compact",
    "open_store",
    "pack",
    "push",
    "repair",
    "verify",
]
