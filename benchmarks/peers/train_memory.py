"""One training run in a process of its own; prints as JSON how much memory it took at most.

    python peers/train_memory.py FOLDER WAY

FOLDER has run.yaml, for data that ``write`` makes. WAY is a profile of Stoker, or KEEPING: a loop by
hand with the default profile's settings that keeps the validation's predictions and targets until all
are there, as many scripts do, and computes the same values from them.
"""

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torchmetrics  # noqa: F401 - an optimizer and metrics import these; neither is what a run takes
from torch import Tensor, nn

import stoker
from measuring import peak_memory
from stoker.config import resolve_training
from stoker.train import assembled

KEEPING = "loop by hand that keeps all predictions"

_NUM_STEPS = 1000  # in a signal
_NUM_TRAIN = 512
_RUN = """
data:
  train: {store: train.stoker}
  val: {store: val.stoker}
  loader: {num_workers: 2}
model: {name: "peers.train_memory:Denoiser"}
task: {name: regression, arguments: {num_channels: 4}}
epochs: 1
device: cpu
compile: "off"
checkpoint_dir: out
log: []
"""


class Denoiser(nn.Sequential):
    """As many numbers come out as go in: [B, 4, T]."""

    def __init__(self) -> None:
        super().__init__(nn.Conv1d(4, 16, 9, padding=4), nn.ReLU(), nn.Conv1d(16, 4, 9, padding=4))


def write(folder: Path, num_val: int) -> None:
    """Signals [4, T] with noise, and the signals."""
    folder.mkdir()
    for name, count in (("train", _NUM_TRAIN), ("val", num_val)):
        stoker.pack(_Signals(count), folder / f"{name}.stoker", progress=False)
    (folder / "run.yaml").write_text(_RUN)


class _Signals:
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> dict[str, Any]:
        rng = np.random.default_rng(i)
        y = np.sin(rng.uniform(0.01, 0.1, (4, 1)) * np.arange(_NUM_STEPS)).astype(np.float32)
        return {"x": y + rng.standard_normal(y.shape, dtype=np.float32), "y": y}


def train_by_profile(profile: str) -> None:
    """As ``stoker train run.yaml --profile PROFILE`` does."""
    settings = resolve_training("run.yaml", profile=profile).settings
    with assembled(settings, progress=False) as run:
        run.fit(resume="fresh")


def train_keeping() -> None:
    """The default profile's training, and an evaluation by whole arrays."""
    size = resolve_training("run.yaml").settings.batch_size
    assert isinstance(size, int)
    load = functools.partial(stoker.Loader, batch_size=size, num_workers=2)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with load(stoker.open("train.stoker")) as train, load(stoker.open("val.stoker"), shuffle=False) as val:
        for batch in train:
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        predictions: list[Tensor] = []
        targets: list[Tensor] = []
        with torch.no_grad():
            for batch in val:
                predictions.append(model(batch["x"]))
                targets.append(batch["y"].clone())  # not the loader's buffer, which it would do without
    prediction, target = torch.cat(predictions), torch.cat(targets)
    error = prediction - target
    mean = target.mean(dim=(0, 2), keepdim=True)
    r2 = 1 - (error**2).sum() / ((target - mean) ** 2).sum()
    assert torch.isfinite(torch.stack([(error**2).mean(), error.abs().mean(), r2])).all()


def main() -> None:
    """Train; print what it took."""
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    way = sys.argv[2]
    with peak_memory(children=False) as peak:
        train_keeping() if way == KEEPING else train_by_profile(way)
    own = peak["num_bytes"] - peak["start_bytes"]
    print(json.dumps({"own_bytes": own, "resident_bytes": _peak_resident_bytes()}))


def _peak_resident_bytes() -> int:
    """By the kernel; getrusage would count the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status does not say VmHWM")


if __name__ == "__main__":
    main()
