"""What a process of a host trains under torchrun.

    python -m torch.distributed.run ... -m support.host STORE FOLDER [GATE...]

Every rank writes down the samples of each step. At a step that is a gate, every rank says that it is there
and waits until the test lets it go on, or the launcher tells it to end.
"""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stoker
from stoker.train import Supervised, Trainer
from support.training import everything, make_loader, make_model, numbers

EPOCHS = 3


class GatedTask(Supervised):
    """Writes samples down, and waits at gates."""

    def __init__(self, folder: Path, gates: set[int]) -> None:
        super().__init__(nn.MSELoss())
        self.folder, self.gates = folder, gates
        self.trainer: Trainer
        self.segment = 0  # when these ranks began together

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        trainer = self.trainer
        ranks = trainer.ranks
        record = {
            "segment": self.segment,
            "epoch": trainer.epoch,
            "step": trainer.step,
            "world_size": ranks.world_size,
            "samples": batch["index"].tolist(),
        }
        with (self.folder / f"seen-{self.segment}-{ranks.rank}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        if trainer.step in self.gates:
            (self.folder / f"at-{trainer.step}-{ranks.world_size}-{ranks.rank}").touch()
            _wait_for(self.folder / f"go-{trainer.step}")
        return super().loss(model, batch)


def _wait_for(path: Path) -> None:
    """Until the file is there or SIGTERM comes, which the trainer sees too."""
    told = threading.Event()
    trainers = signal.getsignal(signal.SIGTERM)

    def tell(number: int, frame: Any) -> None:
        told.set()
        if callable(trainers):
            trainers(number, frame)

    signal.signal(signal.SIGTERM, tell)
    while not path.exists() and not told.wait(0.02):
        pass
    signal.signal(signal.SIGTERM, trainers)


def main(store_path: str, folder: Path, gates: set[int]) -> None:
    """Train, going on from whatever checkpoint there is."""
    store = stoker.open(store_path)
    task = GatedTask(folder, gates)
    options = everything(
        checkpoint_dir=folder / "run",
        checkpoint_every=1,
        accumulate=1,
        scheduler=None,
        measure_training=False,
    )
    with Trainer(make_model(), task, **options) as trainer, make_loader(store, 4) as train:
        task.trainer = trainer
        task.segment = trainer.ranks.told(time.time_ns())
        result = trainer.fit(train, epochs=EPOCHS, resume="auto")
        if trainer.ranks.is_first:
            (folder / "history.json").write_text(json.dumps(numbers(result.history)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], Path(sys.argv[2]), set(map(int, sys.argv[3:])))
