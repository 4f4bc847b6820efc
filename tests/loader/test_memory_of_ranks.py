from pathlib import Path

import numpy as np
import torch.distributed as dist

import stoker
from support.ranks import run_ranks

NUM_BYTES = 48 << 20
RANKS = 4


def memory() -> dict[str, int]:
    """Bytes of this process by kind; a page that others map too counts by its share in Pss."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}


def test_ranks_of_a_machine_share_one_copy_of_the_store(tmp_path: Path) -> None:
    row = np.zeros(4096, np.float32)
    samples = [{"x": row + i} for i in range(NUM_BYTES // row.nbytes)]
    stoker.pack(samples, tmp_path / "a.stoker", workers=0, progress=False)
    del samples

    def grown() -> dict[str, int]:
        before = memory()
        store = stoker.open(tmp_path / "a.stoker")
        with stoker.Loader(store, 16, seed=1, num_workers=1, memory_bytes=8 << 20) as loader:
            for _ in range(2 * RANKS):  # so that every rank has come by nearly every sample
                for _ in loader:
                    pass
            dist.barrier()
            after = memory()
            dist.barrier()
        return {kind: after[kind] - before[kind] for kind in ("Rss", "Pss_File", "Pss_Anon")}

    ranks = run_ranks(RANKS, grown)
    assert all(each["Rss"] > 0.8 * NUM_BYTES for each in ranks)  # each has mapped it
    assert sum(each["Pss_File"] for each in ranks) < 1.6 * NUM_BYTES  # and yet it is there once
    assert all(each["Pss_Anon"] < 0.5 * NUM_BYTES for each in ranks)  # what is read ahead, and threads
