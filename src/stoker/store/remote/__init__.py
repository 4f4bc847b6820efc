"""Stores at a URL: read through a cache on the local disk that all processes of the machine share.

_bucket.py    objects there, with patience  (_url.py beside this folder: what a URL may be)
_patience.py  how long, how often        _locks.py    one byte of a file a shard: who fetches, who uses
_folder.py    files within a budget      _shards.py   a store's shards, made local when needed
_parts.py     few rows of a shard        _ranges.py   pieces of an object, into a file with holes
_store.py     reading                    _verify.py   every byte of it
_push.py      writing                    _transfer.py one call of an asynchronous library, watched
"""

from stoker.store._url import is_url
from stoker.store.remote._push import Pushed, push
from stoker.store.remote._shards import RemoteShards
from stoker.store.remote._store import RemoteStore

__all__ = ["Pushed", "RemoteShards", "RemoteStore", "is_url", "push"]
