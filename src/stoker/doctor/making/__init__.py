"""How samples and batches are made: seen in workers, and tried again in the main process.

_workers.py     timings out of the workers      _worker_loop.py  what runs in them around torch's loop
_ring.py        the memory they share           _fetch.py        the data set's items, the collation
_transforms.py  a chain's parts by name         _stand_in.py     a callable that adds up its time
_trial.py       single samples, made again      _purity.py       how far a sample is the same twice
_randomness.py  the random state, kept        _core_queue.py   how long no core was free
"""
