"""Loops that Stoker's own Loader feeds: the wait is seen, and nothing is advised that it does not have."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import stoker
from doctor.loops import write_script
from stoker.doctor import diagnose, examine, watch

SCRIPT = """
import sys, time

import stoker
import torch
from torch import nn


def slowly(batch, *, index, epoch):
    time.sleep(0.02)
    return batch


loader = stoker.Loader(stoker.open(sys.argv[1]), batch_size=4, augment=slowly)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(40):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()
        optimizer.step()
"""


AUGMENTED = """
import sys

import stoker
import torch
from torch import nn

noise = [stoker.augment.signal.GaussianNoise(snr_db=(20, 40)) for _ in range(30)]
augment = stoker.augment.Pipeline(*noise, roles={"x": "signal", "y": "label"}, seed=0)
loader = stoker.Loader(stoker.open(sys.argv[1]), batch_size=4, augment=augment)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(40):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["x"][:, 0]), batch["y"]).backward()
        optimizer.step()
"""


class Rows:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> dict[str, object]:
        return {"x": np.full(self.shape, i, np.float32), "y": i % 3}


@pytest.fixture
def store(tmp_path: Path) -> stoker.Store:
    stoker.pack(Rows(6), tmp_path / "rows.stoker", workers=0)
    return stoker.open(tmp_path / "rows.stoker")


def test_the_wait_for_its_batches_is_seen(store: stoker.Store) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stoker.Loader(store, 4) as loader, watch() as record:
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    assert [(seen.role, seen.dataset) for seen in record.loaders] == [("train", "stoker.Loader")]
    assert record.loaders[0].num_epochs == 2
    measured = record.in_phase("normal")
    assert measured
    assert all("wait" in step.stages for step in measured)
    assert {step.num_samples for step in measured} == {4}
    assert "wait" not in record.not_observed


def test_a_script_that_it_starves_is_input_bound_and_no_workers_are_advised(
    store: stoker.Store, tmp_path: Path
) -> None:
    record = examine([*write_script(tmp_path, SCRIPT), str(store.path)], steps=20, warmup=4)
    found = diagnose(record)
    assert found.verdict == "input-bound"
    assert found.ceiling_speedup is not None
    assert found.ceiling_speedup.value > 2  # its batches are given again without the wait
    assert not any("num_workers" in advice.settings for advice in found.advice)
    assert any("(augment=) is part of waiting for data" in note for note in found.notes)


def test_operators_of_its_augmentation_are_not_put_down_to_the_model(tmp_path: Path) -> None:
    store = stoker.pack(Rows(1, 6), tmp_path / "signals.stoker", workers=0)
    record = examine([*write_script(tmp_path, AUGMENTED), str(store.path)], steps=8, warmup=4)
    assert record.operators is not None
    assert "Pipeline" not in record.operators.by_module
    assert "Linear" in record.operators.by_module
