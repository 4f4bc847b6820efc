"""Small batches on the host are augmented in the calling thread alone."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from stoker.augment import Params, Pipeline, Role, Transform, _parts


class Count(Transform):
    """Notes how many threads an operator would use."""

    roles = ("signal",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.fails = False

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        self.seen.append(torch.get_num_threads())
        if self.fails:
            raise OverflowError
        return x + 1


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("largest", "expected"), [(1 << 20, 1), (10, 3)])
def test_only_small_batches_and_only_while_they_are_augmented(
    largest: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_parts, "_SMALL", largest)
    count = Count()
    aug = Pipeline(count, roles={"x": "signal"})
    aug({"x": torch.zeros(4, 1, 8)})
    aug.views({"x": torch.zeros(4, 1, 8)}, 2)
    assert count.seen == [expected] * 2
    assert torch.get_num_threads() == 3


def test_a_transform_that_fails_leaves_the_threads_as_they_were() -> None:
    count = Count()
    count.fails = True
    with pytest.raises(OverflowError):
        Pipeline(count, roles={"x": "signal"})({"x": torch.zeros(4, 1, 8)})
    assert count.seen == [1]
    assert torch.get_num_threads() == 3


def test_the_thread_that_trains_keeps_its_own_number() -> None:
    script = """
import threading, torch
from stoker.augment._parts import few_threads
torch.set_num_threads(3)
inside, done = threading.Event(), threading.Event()
def augment():
    with few_threads([torch.ones(3)]):
        inside.set()
        done.wait()
thread = threading.Thread(target=augment)
thread.start()
inside.wait()
torch.ones(1000, 1000) + 1
done.set()
thread.join()
print(torch.get_num_threads())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
