"""Large batches run part by part; transforms of a user's own must not notice."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from stoker.augment import Params, Pipeline, Role, Transform, _parts
from stoker.augment._parts import parts_of
from stoker.augment.image import HorizontalFlip
from stoker.augment.signal import AmplitudeScale, FrequencyMask, GaussianNoise, Speed, TimeShift


class Add(Transform):
    """Adds 1 to some samples."""

    roles = ("image",)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x + 1


class Learn(Transform):
    """Multiplies by something that is learned."""

    roles = ("image",)
    neutral: ClassVar = {}

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3.0))

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x * self.factor


class Transpose(Transform):
    """Gives a view of what it got."""

    roles = ("image",)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x.transpose(-1, -2)


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parts, "_PART", 1 << 10)


@pytest.mark.parametrize("before", [Add(p=0.5), HorizontalFlip(p=0.5)], ids=["changes", "writes"])
def test_what_is_learned_in_a_pipeline_gets_its_gradient(before: Transform) -> None:
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    learn = Learn()
    made = Pipeline(before, learn, Add(p=0.5), roles={"x": "image"})({"x": x})["x"]
    made.sum().backward()
    expected = Pipeline(before, roles={"x": "image"})({"x": x})["x"].sum()
    assert learn.factor.grad is not None
    assert float(learn.factor.grad) == pytest.approx(float(expected))


def test_a_transform_may_give_a_view() -> None:
    x = torch.rand(16, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    pipeline = Pipeline(Add(p=0.5), Transpose(), Add(p=0.5), HorizontalFlip(p=1), roles={"x": "image"})
    draws = pipeline.draw(range(16))
    made = pipeline.replay({"x": x}, draws)["x"]
    first, _, second, _ = (explained["chosen"] for explained in pipeline.explain(draws))
    added = first.float() + second.float()
    assert torch.equal(x, before)
    assert torch.allclose(made, x.transpose(-1, -2).flip(-1) + added[:, None, None, None])


class Threads(Transform):
    """A transform of a user's own that notes who calls it."""

    roles = ("signal",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        self.seen.add(threading.get_ident())
        return x + 1


SIGNALS = [TimeShift(p=0.8), Speed(p=0.5), GaussianNoise(p=0.5), FrequencyMask(p=0.3)]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_parts_in_threads_are_what_they_are_in_one_go_and_as_the_caller_has_it(
    mode: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    aug = Pipeline(*SIGNALS, roles={"x": "signal", "frames": "mask"})
    with mode():
        x = torch.randn(33, 2, 100, generator=torch.Generator().manual_seed(0))
        batch = {"x": x, "frames": torch.arange(33 * 100).view(33, 100)}
        assert len(parts_of(batch, aug._stages)) > 2
        in_parts = aug(batch, index=range(33))
        monkeypatch.setattr(_parts, "_PART", 1 << 30)
        at_once = aug(batch, index=range(33))
    for name in batch:
        assert torch.equal(in_parts[name], at_once[name])
        assert in_parts[name].is_inference() == at_once[name].is_inference()
        assert not in_parts[name].requires_grad


@pytest.mark.usefixtures("two_threads")
def test_a_user_s_own_transform_is_called_by_the_calling_thread() -> None:
    mine = Threads()
    Pipeline(TimeShift(), mine, roles={"x": "signal"})({"x": torch.zeros(64, 1, 100)})
    assert mine.seen == {threading.get_ident()}


@pytest.mark.usefixtures("two_threads")
def test_parts_in_which_nothing_was_chosen_stay_as_they_were() -> None:
    aug = Pipeline(AmplitudeScale(2.0, p=0.1), roles={"x": "signal"})
    x = torch.rand(64, 1, 100)
    draws = aug.draw(range(64))
    made = aug.replay({"x": x}, draws)["x"]
    factor = 1 + draws.chosen.float()[:, :, None]
    assert torch.equal(made, x * factor)
    assert 0 < int(draws.chosen.sum()) < 16
    none = draws._replace(rows=(torch.arange(0),), values=torch.ones_like(draws.values))
    assert aug.replay({"x": x}, none)["x"] is x


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_threads_have_the_caller_s_mode_and_leave_no_trace(is_enabled: bool) -> None:
    seen: list[tuple[bool, int]] = []

    def change(part: slice) -> dict[str, Tensor]:
        seen.append((torch.is_grad_enabled(), torch.get_num_threads()))
        return {"first": torch.tensor(part.start)}

    with torch.set_grad_enabled(is_enabled):
        made = _parts._in_threads(change, [slice(start, start + 1) for start in range(5)])
    assert seen == [(is_enabled, 1)] * 5
    assert [int(each["first"]) for each in made] == [0, 1, 2, 3, 4]
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [torch.get_num_threads()] == [2]


@pytest.mark.usefixtures("two_threads")
def test_what_fails_in_a_thread_is_raised_by_the_caller() -> None:
    def change(part: slice) -> dict[str, Tensor]:
        raise OverflowError(part.start)

    with pytest.raises(OverflowError, match="0"):
        _parts._in_threads(change, [slice(0, 1), slice(1, 2)])
    assert torch.get_num_threads() == 2


_AFTER_MAIN = """
import threading, torch
from stoker.augment import Pipeline, _parts
from stoker.augment.signal import TimeShift
torch.set_num_threads(2)
_parts._PART = 64
def train():
    threading.main_thread().join()
    print(Pipeline(TimeShift(), roles={"x": "signal"})({"x": torch.ones(8, 1, 100)})["x"].sum().item())
threading.Thread(target=train).start()
"""


def test_a_thread_that_trains_on_after_the_main_one_augments_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AFTER_MAIN], capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout == "800.0\n"
