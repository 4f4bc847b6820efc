"""On a Dask worker freed memory is used again while it packs: counted by the pages that are mapped anew."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource
import numpy as np
from stoker.store.dask._memory import give_memory_back, keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.empty(1 << 18, np.uint8)[:] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [faults()]
keep_freed_memory()
faults()
found.append(faults())
give_memory_back()
found.append(faults())
print(json.dumps(found))
"""
PAGES = 200 * (1 << 18) // os.sysconf("SC_PAGE_SIZE")

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library cannot be told what to keep"
)


def faults(**environment: str) -> list[int]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=ours | environment, capture_output=True, check=True
    )
    return [int(number) for number in json.loads(done.stdout)]


def test_what_is_freed_is_used_again_until_it_is_given_back() -> None:
    at_first, kept, given_back = faults(MALLOC_TRIM_THRESHOLD_="65536")  # as Dask starts its workers
    assert at_first >= PAGES
    assert kept < PAGES // 20
    assert given_back >= PAGES


def test_where_nobody_ordered_otherwise_the_c_library_learns_by_itself() -> None:
    at_first, kept, given_back = faults()
    assert max(at_first, kept, given_back) < PAGES // 2
