"""Cardiac CT: volumes read, turned and resampled in every epoch, or once.

The naive pipeline is the original's "standard loader": a Dataset whose items are whole chains of transforms
from the gzipped file to the finished volume, behind PyTorch's DataLoader with batches of 8, two workers (as
many as there are cores) and pinned memory where there is a GPU to pin it for. It is here twice: as MONAI's
transforms, which is what the original calls, and by hand with nibabel and SciPy.

Ours: the same volumes in the recipe's store, read by its loader, brought to 0 … 1 and joined with their
labels. Also the recipe's own reading of raw files, which is what it does without a store.

All give the same batches, x [8, 1, 224, 224, 160] from 0 to 1, which is checked. Measured is an epoch of
several batches, from asking for it to its last batch, divided by their number. Both have had an epoch before:
workers are started, files and store are in the page cache.
"""

import functools
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from feeding import Accelerator, add_fed
from measuring import Report, interleave, say
from stoker.config import usable_cores
from stoker.recipes.cardiac_ct import CardiacSettings
from stoker.recipes.cardiac_ct._data import batches, open_collection
from stoker.recipes.cardiac_ct._prepare import prepare

NUM_DISTINCT = 4
SOURCE = "the document's batch in 0.15 s"
ACCELERATOR = {quick: Accelerator(0.15, SOURCE, 1 if quick else 2) for quick in (False, True)}
OURS = "Stoker: store, Loader, labels joined"
RAW = "Stoker without a store: raw files"


def measure(report: Report, *, quick: bool) -> None:
    """Add the rows of this section."""
    num_studies, batch_size, repetitions = (4, 2, 1) if quick else (24, 8, 3)
    shape, spacing = ((96, 96, 30), (4.0, 4.0, 8.0)) if quick else ((512, 512, 96), (0.75, 0.75, 2.5))
    volume = {"spacing": (6.0, 6.0, 9.0), "size": (56, 56, 40)} if quick else {}
    workers = min(2, usable_cores())
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        say(f"cardiac_ct: writing and packing {num_studies} volumes of {shape}")
        num_bytes = _write(folder, num_studies, shape, spacing)
        settings = CardiacSettings.model_validate(
            {
                "volume": {"spacing": (1.5, 1.5, 3.0), "size": (224, 224, 160)} | volume,
                "store": folder / "ct.stoker",
                "training": {"batch_size": batch_size},
                "loading": {"num_workers": workers},
                "progress": False,
            }
        )
        start = time.perf_counter()
        prepare(folder, settings.store_path, settings)
        packing_s = time.perf_counter() - start
        runs: dict[str, Iterable[Any]] = {}
        for title, packed in ((OURS, "auto"), (RAW, "never")):
            collection = open_collection(folder, settings.model_copy(update={"packed": packed}))
            assert (collection.store is not None) == (packed == "auto")
            numbers = np.arange(num_studies)
            loading = batches(collection, numbers, settings, device="cpu", shuffle=True)
            runs[title] = stack.enter_context(loading)
        paths = [study.path for study in collection.studies]
        naive = _naive(paths, settings, batch_size, workers)
        runs |= naive
        _check_equal(runs, num_studies)
        # workers that were forked since share its memory, which is copied when next written to
        _batch_s(runs[OURS], num_studies // batch_size)
        workload = (
            f"{num_studies} CT volumes of {list(shape)}, {num_bytes / 1e6:.3g} MB, batches of {batch_size}"
        )
        say(f"cardiac_ct: {workload}, {', '.join(runs)}")
        num_batches = num_studies // batch_size
        values = interleave(
            {title: functools.partial(_batch_s, loader, num_batches) for title, loader in runs.items()},
            repetitions,
        )
        _end_workers(naive)  # whose memory is measured in other processes
        fed = {title: functools.partial(iter, loader) for title, loader in runs.items()}
        add_fed(report, workload, fed, ACCELERATOR[quick], repetitions)
        _end_workers(naive)
    _add(report, workload, values, list(naive), packing_s)


def _end_workers(loaders: Mapping[str, Any]) -> None:
    for loader in loaders.values():
        loader._iterator = None  # noqa: SLF001 - the workers end with it


def _add(
    report: Report, workload: str, values: dict[str, list[float]], naive: list[str], packing_s: float
) -> None:
    report.add(workload, "Stoker: packing, once", [packing_s], "s")
    for title, each in values.items():
        report.add(workload, f"{title}: a batch", each, "s")
    for title in naive:
        pairs = zip(values[title], values[OURS], strict=True)
        factors = [slow / fast for slow, fast in pairs]
        report.add(workload, f"{OURS}: times as fast as {title} (budget 21)", factors, "ratio")
    if not any("MONAI" in title for title in naive):
        report.add_missing(workload, "MONAI transforms in a DataLoader")
    factors = [slow / fast for slow, fast in zip(values[RAW], values[OURS], strict=True)]
    report.add(workload, f"{OURS}: times as fast as {RAW}", factors, "ratio")


def _write(
    folder: Path, num_studies: int, shape: tuple[int, int, int], spacing: tuple[float, float, float]
) -> int:
    """Gzipped int16 volumes with axes to the left, back and up; a few distinct ones, the others are links."""
    rng = np.random.default_rng(0)
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    rows = ["basename,folder,patient_id,lvef,AS_maybe"]
    (folder / "stanford_1A").mkdir()
    for number in range(num_studies):
        rows.append(f"P{number}-0,1A,P{number},{40 + number % 30},{number % 2}")
        path = folder / "stanford_1A" / f"P{number}-0.nii.gz"
        if number >= NUM_DISTINCT:
            os.link(folder / "stanford_1A" / f"P{number % NUM_DISTINCT}-0.nii.gz", path)
            continue
        places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
        body = (places[0] / 0.8) ** 2 + (places[1] / 0.6) ** 2 < 1
        volume = np.where(body, 60 * number + 300 * places[2], -1000) + rng.normal(0, 15, shape)
        nibabel.save(nibabel.Nifti1Image(volume.astype(np.int16), affine), path)
    (folder / "studies.csv").write_text("\n".join(rows) + "\n")
    return sum(path.stat().st_size for path in folder.rglob("*.nii.gz"))


def _naive(
    paths: list[Path], settings: CardiacSettings, batch_size: int, workers: int
) -> dict[str, DataLoader[Any]]:
    kinds: dict[str, Any] = {"nibabel and SciPy in a DataLoader": _ByHand}
    if importlib.util.find_spec("monai") is not None:
        kinds["MONAI transforms in a DataLoader"] = _ByMonai
    return {
        f"{title}, {workers} workers": DataLoader(
            kind(paths, settings),
            batch_size=batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=True,
            pin_memory=torch.cuda.is_available(),
        )
        for title, kind in kinds.items()
    }


class _ByHand(Dataset[dict[str, Any]]):
    """Read, turn, resample, clip, pad and crop, at every access."""

    def __init__(self, paths: list[Path], settings: CardiacSettings) -> None:
        self._paths = paths
        assert settings.volume.spacing is not None
        self._spacing, self._size = np.array(settings.volume.spacing), settings.volume.size

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        image = nibabel.as_closest_canonical(nibabel.load(self._paths[i]))
        volume = image.get_fdata(dtype=np.float32)
        step = self._spacing / voxel_sizes(image.affine)
        shape = np.round((np.array(volume.shape) - 1) / step + 1).astype(int)
        volume = ndimage.affine_transform(volume, step, output_shape=tuple(shape), order=1, mode="nearest")
        volume = (volume.clip(-1000, 1000) + 1000) / 2000
        return {"x": torch.from_numpy(_fitted(volume, self._size))[None], "index": i}


class _ByMonai(Dataset[dict[str, Any]]):
    """The original's chain of transforms, at every access."""

    def __init__(self, paths: list[Path], settings: CardiacSettings) -> None:
        from monai import transforms

        self._paths = paths
        self._chain = transforms.Compose(
            [
                transforms.LoadImage(image_only=True),
                transforms.EnsureChannelFirst(),
                transforms.Orientation(axcodes="RAS", labels=None),
                transforms.Spacing(pixdim=settings.volume.spacing, mode="bilinear"),
                transforms.ScaleIntensityRange(-1000, 1000, 0.0, 1.0, clip=True),
                transforms.SpatialPad(settings.volume.size),
                transforms.CenterSpatialCrop(settings.volume.size),
            ]
        )

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        volume: Any = self._chain(self._paths[i])
        return {"x": volume.as_tensor(), "index": i}


def _fitted(volume: NDArray[Any], size: tuple[int, ...]) -> NDArray[Any]:
    """Padded with zeros, then cut, both about the middle."""
    missing = [max(0, wanted - there) for wanted, there in zip(size, volume.shape, strict=True)]
    padded = np.pad(volume, [(each // 2, each - each // 2) for each in missing])
    starts = [there // 2 - wanted // 2 for wanted, there in zip(size, padded.shape, strict=True)]
    return padded[tuple(slice(a, a + wanted) for a, wanted in zip(starts, size, strict=True))]


def _batch_s(loader: Iterable[Any], num_batches: int) -> float:
    """Seconds a batch over one epoch."""
    start = time.perf_counter()
    found = sum(1 for _ in loader)
    assert found == num_batches
    return (time.perf_counter() - start) / found


def _check_equal(runs: dict[str, Iterable[Any]], num_studies: int) -> None:
    """That all pipelines make the same volumes, to half a HU of rounding; also warms all of them up."""
    sums: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for title, loader in runs.items():
        sums[title] = torch.zeros(num_studies)
        for batch in loader:
            for number, x in zip(batch["index"].tolist(), batch["x"], strict=True):
                sums[title][number] = x.mean()
                if number == 0:
                    first[title] = x.clone()
    for title in runs:
        torch.testing.assert_close(sums[title], sums[OURS], atol=1e-4, rtol=0)
        torch.testing.assert_close(first[title], first[OURS], atol=1e-3, rtol=0)
