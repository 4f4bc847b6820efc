"""A store of a billion samples that takes no room: an index of zeros, which the disk need not hold.

    python -m support.billion STORE

Opens and shuffles it, and says how much memory of its own that took.
"""

import itertools
import json
import sys
from pathlib import Path

import h5py
import numpy as np

import stoker
from stoker.store._manifest import index_path, read_manifest, write_manifest

NUM_SAMPLES = 10**9


def write(path: Path) -> None:
    """Every sample is the one row of the one shard."""
    samples = [{"x": np.arange(256, dtype=np.float32)}]
    stoker.pack(samples, path, workers=0, progress=False)
    manifest = read_manifest(path)
    name = "0" * 32
    columns = {
        "keys/values": (1, "u1"),
        "keys/offsets": (NUM_SAMPLES + 1, "i8"),
        "fingerprints": ((NUM_SAMPLES, 2), "u8"),
        "shard": (NUM_SAMPLES, "u4"),
        "row": (NUM_SAMPLES, "u4"),
        "split": (NUM_SAMPLES, "u1"),
    }
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(index_path(path, name), "w", libver="latest") as file:
        file.create_group("keys")
        for column, (shape, dtype) in columns.items():
            space = h5py.h5s.create_simple(shape if isinstance(shape, tuple) else (shape,))
            kind = h5py.h5t.py_create(np.dtype(f"<{dtype}"))
            h5py.h5d.create(file.id, column.encode(), kind, space, dcpl=properties)
        file["keys/offsets"][-1] = 1  # the last sample has a name of one letter, the others have none
    num_bytes = index_path(path, name).stat().st_size
    index = manifest.index.model_copy(
        update={"digest": name, "num_bytes": num_bytes, "num_samples": NUM_SAMPLES}
    )
    write_manifest(path, manifest.model_copy(update={"num_samples": NUM_SAMPLES, "index": index}))


def own_memory_bytes() -> int:
    """Without pages of mapped files, which the system may drop."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def main(path: str) -> None:
    """Some batches, a jump to the middle, some batches."""
    with stoker.Loader([{"x": np.zeros(256, np.float32)}] * 64, 32) as small:  # threads and buffers
        list(small)
    before = own_memory_bytes()
    store = stoker.open(path)
    assert len(store) == NUM_SAMPLES
    seen: list[int] = []
    with stoker.Loader(store, 256, seed=1) as loader:
        for batch in itertools.islice(loader, 6):
            seen += batch["index"].tolist()
        state = loader.state_dict()
    with stoker.Loader(store, 256, seed=1) as loader:
        loader.load_state_dict({**state, "consumed": NUM_SAMPLES // 512 * 256})
        for batch in itertools.islice(loader, 6):
            seen += batch["index"].tolist()
    sys.stdout.write(json.dumps({"grown": own_memory_bytes() - before, "seen": seen}))


if __name__ == "__main__":
    main(sys.argv[1])
