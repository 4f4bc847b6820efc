"""Large batches run part by part; transforms of a user's own must not notice."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from stoker.augment import Params, Pipeline, Role, Transform, _parts
from stoker.augment.image import HorizontalFlip


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
    x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    pipeline = Pipeline(Add(p=0.5), Transpose(), Add(p=0.5), HorizontalFlip(p=1), roles={"x": "image"})
    draws = pipeline.draw(range(16))
    made = pipeline.replay({"x": x}, draws)["x"]
    first, _, second, _ = (explained["chosen"] for explained in pipeline.explain(draws))
    added = first.float() + second.float()
    assert torch.equal(x, before)
    assert torch.allclose(made, x.transpose(-1, -2).flip(-1) + added[:, None, None, None])
