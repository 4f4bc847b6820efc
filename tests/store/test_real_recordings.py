"""The whole way on real heart sounds, where they are at hand."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

import stoker
from stoker.store.sources import FolderSource

RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "heart_sounds"

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"needs recordings in {RECORDINGS}")


def test_real_recordings_are_packed_verified_split_and_counted(tmp_path: Path) -> None:
    store = stoker.pack(
        FolderSource(RECORDINGS, labels="folder"),
        tmp_path / "hearts.stoker",
        splits={"train": 0.75, "val": 0.25},
        stratify="y",
    )
    assert store.verify().ok
    assert store.classes == {"y": ("MR", "MS", "MVP", "N")}
    for name, expected in (("train", 90), ("val", 30)):
        assert np.bincount(store.split(name).column("y")).tolist() == [expected] * 4
    files = sorted(RECORDINGS.rglob("*.wav"))
    signals = [soundfile.read(file, dtype="float32")[0] for file in files]
    for i in range(0, len(store), 37):
        np.testing.assert_array_equal(store[i]["x"], signals[i][None])
        assert store.key(i) == files[i].relative_to(RECORDINGS).as_posix()
    values = np.concatenate(signals).astype(np.float64)
    found = store.stats["x"]
    assert found.count == (len(values),)
    np.testing.assert_allclose(found.mean, values.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.std, values.std(), rtol=1e-12)
    assert (found.min, found.max) == ((values.min(),), (values.max(),))
