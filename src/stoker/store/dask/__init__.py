"""Packing on a Dask cluster.

_cluster.py  which cluster, and how it is reached     _packing.py  the tasks of one run, kept busy
_ranges.py   which samples a task packs               _tasks.py    what runs on a worker
_job.py      source and transform, sealed to travel   _memory.py   what is freed there is used again
_preload.py  loaded first by workers started here
"""

from stoker.store.dask._cluster import Scheduler, check_scheduler

__all__ = ["Scheduler", "check_scheduler"]
