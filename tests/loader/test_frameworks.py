"""The loader inside Lightning and Accelerate."""

from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from support.datasets import Signals, keys

COUNT = 101


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    return stoker.pack(Signals(keys(COUNT)), path, shard_bytes=6000, workers=0)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(100, 3)

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        logits = self.layer(batch["x"].flatten(1))
        return torch.nn.functional.cross_entropy(logits, batch["y"])


@pytest.mark.filterwarnings("ignore")  # Lightning's own, about PyTorch and about few workers
def test_lightning_takes_a_loader_as_it_is(tmp_path: Path, store: stoker.Store) -> None:
    lightning = pytest.importorskip("lightning", reason="pip install 'stoker[frameworks]'")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.seen: list[list[int]] = []

        def training_step(self, batch: dict[str, Any], step: int) -> torch.Tensor:
            if step == 0:
                self.seen.append([])
            self.seen[-1] += batch["index"].tolist()
            return self.model(batch)  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    module = Module()
    with stoker.Loader(store, 16) as loader:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, loader)
    assert [sorted(epoch) for epoch in module.seen] == [list(range(COUNT))] * 2
    assert module.seen[0] != module.seen[1]


def test_accelerate_is_used_beside_a_loader(store: stoker.Store) -> None:
    accelerate = pytest.importorskip(
        "accelerate", reason="needs Accelerate: pip install 'stoker[frameworks]'"
    )
    accelerator = accelerate.Accelerator(cpu=True)
    model = Model()
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
    with stoker.Loader(store, 16, device=accelerator.device) as loader:
        for batch in loader:
            accelerator.backward(prepared(batch))
            optimizer.step()
            optimizer.zero_grad()
        assert loader.state_dict()["consumed"] == COUNT
