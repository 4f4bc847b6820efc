import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from stoker.doctor.sampling import _operators
from stoker.doctor.sampling._operators import GRADIENTS, OUTSIDE, count_operators


@dataclass
class Mark:
    what: str
    title: str = ""
    sequence: int = -1

    def kind(self) -> str:
        return self.what

    def name(self) -> str:
        return self.title

    def sequence_nr(self) -> int:
        return self.sequence


def marks(text: str) -> list[Mark]:
    """`name`, `name#7` with a sequence number, and `)` for an end, by spaces; `~` stands for a space."""
    found = []
    for word in text.split():
        name, _, sequence = word.replace("~", " ").partition("#")
        found.append(Mark("pop") if word == ")" else Mark("push", name, int(sequence or -1)))
    return found


def test_operators_inside_operators_and_those_of_optimizers_and_loaders_are_left_out() -> None:
    text = "aten::linear aten::t ) aten::addmm ) ) Optimizer.step aten::mul ) ) mine::scan ) "
    assert _operators.count_marks([marks(text)]) == {OUTSIDE: 2}
    assert _operators.count_marks([marks("enumerate(DataLoader)~next aten::stack ) )")]) == {}


def test_ends_of_what_began_before_are_ignored() -> None:
    assert _operators.count_marks([marks(") ) aten::add ) )")]) == {OUTSIDE: 1}


def test_backward_operators_belong_to_the_module_of_their_forward_on_any_thread() -> None:
    forward = marks("stoker~module~Net aten::mul#4 ) stoker~module~Block aten::mm#5 ) ) ) aten::mean#6 )")
    node = "autograd::engine::evaluate_function:~X {}Backward#{} aten::mm ) aten::t ) ) )"
    backward = marks(" ".join(node.format(name, number) for name, number in (("Mm", 5), ("Mul", 4))))
    gradients = marks(
        "autograd::engine::evaluate_function:~A torch::autograd::AccumulateGrad aten::add ) ) )"
    )
    expected = {"Net": 1 + 2, "Block": 1 + 2, OUTSIDE: 1, GRADIENTS: 1}
    assert _operators.count_marks([forward, backward, gradients]) == expected
    assert _operators.count_marks([gradients, backward, forward]) == expected


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x) + state)


class Scan(nn.Module):
    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.cell, self.num_steps = Cell(), num_steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(4, 8)
        for _ in range(self.num_steps):
            state = self.cell(x, state)
        return state


class Training:
    def __init__(self, num_steps: int) -> None:
        self.model: Any = Scan(num_steps)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(torch.ones(4, 8)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


def counted(training: Training, *, num_steps: int = 2) -> Any:
    with count_operators() as count:
        for _ in range(num_steps):
            training.step()
    return count.result(num_steps, 0.01)


def test_a_loop_over_time_steps_shows_by_number_and_by_module() -> None:
    short, long = counted(Training(2)), counted(Training(50))
    # linear, add, tanh forward; their gradients at least once each
    assert (long.by_module["Cell"] - short.by_module["Cell"]) / 48 >= 6
    assert long.by_module["Cell"] > 0.95 * long.per_step
    assert long.by_module["Scan"] == short.by_module["Scan"] == 1  # zeros
    assert long.per_step == sum(long.by_module.values())
    assert long.seconds_per_operator == 0.01 / (2 * long.per_step)
    assert set(long.by_module) == {"Cell", "Scan", OUTSIDE, GRADIENTS}
    assert long.host_syncs == {}


def test_where_the_host_asks_for_values_is_counted_by_the_users_line() -> None:
    value = torch.tensor(2.0)
    before = {name: vars(torch.Tensor).get(name) for name in _operators._SYNCS}
    with count_operators() as count:
        line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
        for _ in range(3):
            assert value.item() == 2
            assert float(value) == 2
            assert int(value) == 2
            assert value
            assert str(value.tolist()) == "2.0"
            assert value.cpu().numpy() == 2
            assert f"{value:.1f}" == "2.0"
            assert [0, 1, 2][torch.tensor(2)] == 2
    result = count.result(3, 0.0)
    assert result is not None
    labels = [
        ".item()",
        "float()",
        "int()",
        "bool()",
        ".tolist()",
        ".cpu()",
        ".numpy()",
        ".item()",
        "index()",
    ]
    lines = [2, 3, 4, 5, 6, 7, 7, 8, 9]
    expected = Counter(
        f"{label} test_operators.py:{line + offset}" for label, offset in zip(labels, lines, strict=True)
    )
    assert result.host_syncs == expected
    assert {name: vars(torch.Tensor).get(name) for name in _operators._SYNCS} == before
    assert sys.getprofile() is None


def test_what_optimizers_ask_for_is_not_the_users_doing() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([parameter], max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with count_operators() as count:
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert count.host_syncs == {}


def test_a_compiled_model_stays_compiled() -> None:
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    training = Training(3)
    training.model = torch.compile(training.model, backend=backend)
    losses = [training.step() for _ in range(2)]
    num_graphs = len(graphs)
    result = counted(training)
    losses.append(training.step())
    assert len(graphs) == num_graphs > 0
    assert result.per_step > 10
    plain = Training(3)
    assert plain.model.num_steps == 3
    assert losses[0] > losses[-1]  # it still learns


def test_where_another_profiler_is_at_work_nothing_is_counted_and_nothing_broken() -> None:
    def theirs(*_: object) -> None:
        pass

    sys.setprofile(theirs)
    try:
        assert counted(Training(2)) is None
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)
    with torch.autograd.profiler_legacy.profile() as profile:  # type: ignore[no-untyped-call]
        assert counted(Training(2)) is None
    assert profile.function_events


def test_an_exception_inside_passes_and_leaves_nothing_behind() -> None:
    with pytest.raises(LookupError), count_operators():
        raise LookupError
    assert sys.getprofile() is None
    assert counted(Training(2)) is not None


def test_gradients_and_losses_are_the_same_while_counting() -> None:
    torch.manual_seed(0)
    plain = Training(3)
    torch.manual_seed(0)
    watched = Training(3)
    expected = [plain.step() for _ in range(3)]
    with count_operators():
        found = [watched.step() for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
