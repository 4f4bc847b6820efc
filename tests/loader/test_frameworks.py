"""The loader inside real process groups, Lightning and Accelerate."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from support.datasets import Signals, keys

COUNT = 101

SCRIPT = """
import json, sys
import torch.distributed as dist
import stoker

dist.init_process_group("gloo")
path, batch_size, state_file, num_steps, out = sys.argv[1:6]
loader = stoker.Loader(stoker.open(path), int(batch_size), seed=1, num_workers=1)
if state_file != "-":
    loader.load_state_dict(json.load(open(state_file)))
seen = []
for step, batch in enumerate(loader):
    seen.append(batch["index"].tolist())
    dist.barrier()  # a rank with fewer steps than others would leave them waiting here
    if step + 1 == int(num_steps):
        break
with open(f"{out}.{dist.get_rank()}", "w") as file:
    json.dump({"seen": seen, "state": loader.state_dict()}, file)
loader.close()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "a.stoker"
    return stoker.pack(Signals(keys(COUNT)), path, shard_bytes=6000, workers=0)


def run_ranks(
    tmp_path: Path, store: stoker.Store, ranks: int, batch_size: int, state: Any, num_steps: int
) -> list[dict[str, Any]]:
    """What each of several real processes saw."""
    (tmp_path / "script.py").write_text(SCRIPT)
    state_file = "-"
    if state is not None:
        state_file = str(tmp_path / "state.json")
        Path(state_file).write_text(json.dumps(state))
    out = tmp_path / f"out-{ranks}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    arguments = [str(store.path), str(batch_size), state_file, str(num_steps), str(out)]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(ranks)]


def test_one_then_two_then_three_processes_share_one_epoch(tmp_path: Path, store: stoker.Store) -> None:
    seen: list[int] = []
    state = None
    for ranks, batch_size, num_steps in ((1, 10, 3), (2, 8, 2), (3, 7, 99)):
        results = run_ranks(tmp_path, store, ranks, batch_size, state, num_steps)
        assert len({json.dumps(result["state"]) for result in results}) == 1
        assert len({len(result["seen"]) for result in results}) == 1
        state = results[0]["state"]
        for step in zip(*(result["seen"] for result in results), strict=True):
            for batch in step:
                seen += batch
    with stoker.Loader(store, COUNT, seed=1) as loader:
        expected = next(iter(loader))["index"].tolist()
    assert seen == expected


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
