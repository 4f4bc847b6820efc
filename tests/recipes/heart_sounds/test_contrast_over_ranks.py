"""Two real processes compare as one does."""

import multiprocessing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stoker.recipes.heart_sounds._settings import ContrastSettings
from stoker.recipes.heart_sounds.learning import ContrastTask
from stoker.recipes.heart_sounds.learning._contrast import Views
from stoker.recipes.heart_sounds.learning._info_nce import unit

SETTINGS = ContrastSettings(temperature=0.5)


class Embedder(nn.Module):
    """Whole cycles and parts, without layers that look at a whole batch."""

    copy = None

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cycle, self.part = nn.Linear(6, 4), nn.Linear(6, 12)

    def forward(self, x: Tensor, parts: Tensor) -> Views:
        flat = x.flatten(1)
        return Views(unit(self.cycle(flat)), unit(self.part(flat).reshape(-1, 4, 3)), parts > 0)


def batch(rows: slice) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 8, 1, 6, generator=generator)
    return {
        "first": first[rows],
        "second": second[rows],
        "first_parts": torch.ones(8, 4)[rows],
        "second_parts": torch.ones(8, 4)[rows],
        "index": torch.arange(8)[rows],
        "recording_id": torch.arange(8)[rows] // 2,
    }


def gradients(rows: slice) -> list[Tensor]:
    model: Any = Embedder()
    loss, _ = ContrastTask(model, SETTINGS).loss(model, batch(rows))
    loss.backward()  # type: ignore[no-untyped-call]
    return [weight.grad for weight in model.parameters()]


def rank_alone(rank: int, folder: Path) -> None:
    """What one rank does: its half of the batch, and the mean of the gradients as DDP takes it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = gradients(slice(4 * rank, 4 * rank + 4))
    for each in found:
        dist.all_reduce(each)
    torch.save([each / 2 for each in found], folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_have_the_gradients_of_one_with_both_halves(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # torch is imported already
    ranks = [context.Process(target=rank_alone, args=(rank, tmp_path)) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(120)
        assert each.exitcode == 0
    expected = gradients(slice(None))
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
