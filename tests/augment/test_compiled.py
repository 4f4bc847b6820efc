"""Compiled code does what eager code does, and is compiled once."""

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from augment.examples import CASES, batch_of, example, pipeline, roles_of, rows
from stoker.augment import Pipeline, preset
from stoker.augment.signal import GaussianNoise, TimeMask, TimeShift


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_traced_transform_equals_the_eager_one_and_is_traced_once(case: tuple[str, int]) -> None:
    aug = pipeline(case, p=0.6)
    traced = torch.compile(aug.replay, fullgraph=True, backend="eager")
    both = batch_of(roles_of(case), 16)
    for half in (slice(0, 8), slice(8, 16)):
        batch = rows(both, half)
        draws = aug.draw(batch["index"], 1)
        expected, found = aug.replay(batch, draws), traced(batch, draws)
        assert expected.keys() == found.keys()
        for name in expected:
            tolerance = example(case).compiled_tolerance * float(expected[name].abs().max())
            torch.testing.assert_close(found[name], expected[name], atol=tolerance, rtol=0)


def test_the_whole_call_can_be_traced_with_its_draws() -> None:
    aug = preset("heart_sounds")
    traced = torch.compile(aug, fullgraph=True, backend="eager")
    x = torch.randn(8, 1, 400)
    for epoch in range(3):
        index = torch.arange(8) + 8 * epoch
        found = traced({"x": x}, index=index, epoch=torch.tensor(epoch))["x"]
        torch.testing.assert_close(found, aug({"x": x}, index=index, epoch=epoch)["x"], atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")  # the compiler's own
def test_a_compiled_policy_equals_the_eager_one_and_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("tqdm"):  # the compiler shows its progress with it
        monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else a thread of it would outlive the test
    aug = Pipeline(
        TimeShift(0.1, p=0.8), GaussianNoise(10, p=0.5), TimeMask(50, p=0.5), roles={"x": "signal"}
    )
    compiled = torch.compile(aug.replay, fullgraph=True)
    x = torch.randn(16, 1, 400)
    with torch._inductor.config.patch(compile_threads=1):  # else its threads outlive the test
        for epoch in range(2):
            draws = aug.draw(np.arange(16), epoch)
            found, expected = compiled({"x": x}, draws)["x"], aug.replay({"x": x}, draws)["x"]
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
