"""Residuals are zero on what the simulation wrote, and grow with what violates it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stoker.recipes.printer_tcn import COLUMNS, TARGETS, Axis
from stoker.recipes.printer_tcn._laws import Conditions, lawful, quality
from stoker.recipes.printer_tcn._layout import DRIVE, STATES, find_layers, read_layer
from stoker.recipes.printer_tcn._model import ImplicitStateTCN
from stoker.recipes.printer_tcn._physics import Dynamics, law_residual
from stoker.recipes.printer_tcn._scaler import fit_scaler
from stoker.recipes.printer_tcn._settings import LossSettings, ModelSettings, PhysicsSettings
from stoker.recipes.printer_tcn._task import PrinterTask

DYNAMICS = Dynamics(PhysicsSettings().axes, 100.0)


@pytest.fixture(scope="module")
def layers(parts: Path) -> list[Tensor]:
    """All layers above the first, [T, 22]."""
    return [torch.from_numpy(read_layer(each)[0]) for each in find_layers(parts)[0] if each.number > 1]


def columns(rows: Tensor, names: tuple[str, ...]) -> Tensor:
    return rows[..., [COLUMNS.index(name) for name in names]]


def residual(rows: Tensor, states: Tensor) -> Tensor:
    return DYNAMICS.residual(states[None].double(), columns(rows, DRIVE)[None].double())


def test_the_dynamics_hold_on_every_layer(layers: list[Tensor]) -> None:
    for rows in layers:
        size = columns(rows, DRIVE).double().square().mean().sqrt()
        found = residual(rows, columns(rows, STATES)).square().mean().sqrt()
        assert found < 1e-5 * size  # what float32 leaves of a layer
        assert size > 50


def test_their_residual_grows_with_the_violation(layers: list[Tensor]) -> None:
    rows = layers[0]
    states = columns(rows, STATES).double()
    wrong = torch.randn(states.shape, generator=torch.Generator().manual_seed(0)).double() * states.std()
    sizes = [float(residual(rows, states + share * wrong).square().mean()) for share in (0, 0.01, 0.1, 1.0)]
    assert sizes == sorted(sizes)
    assert sizes[2] == pytest.approx(100 * sizes[1], rel=1e-2)  # it is linear in the error
    assert sizes[3] == pytest.approx(100 * sizes[2], rel=1e-2)


def test_a_printer_of_another_mass_does_not_obey_them(layers: list[Tensor]) -> None:
    other = Dynamics((Axis(0.3, 150_000.0, 25.0), Axis(0.65, 150_000.0, 25.0)), 100.0)
    states, drive = (columns(layers[0], names)[None].double() for names in (STATES, DRIVE))
    found = other.residual(states, drive).square().mean((0, 1)).sqrt()
    assert found[0] > 0.05 * drive[..., 0].std()
    assert found[1] < 1e-4 * drive[..., 1].std()


def test_the_residual_is_the_missing_acceleration() -> None:
    """A force that the reference does not know of shows up as just its acceleration."""
    axis = PhysicsSettings().axes[0]
    pull = np.random.default_rng(1).uniform(-500, 500, 200)
    error = axis.simulate(pull + 30.0, 100.0)[:, 0]
    states = torch.from_numpy(np.stack([error, error], 1))[None]
    drive = torch.from_numpy(np.stack([pull, pull], 1))[None]
    found = DYNAMICS.residual(states, drive)[..., 0]
    torch.testing.assert_close(found, torch.full_like(found, 30.0), rtol=1e-6, atol=1e-6)


def test_the_laws_hold_wherever_quality_is_known(layers: list[Tensor]) -> None:
    rows = torch.cat(layers)
    known = rows[rows[:, -1] == 1]
    assert len(known) > 1000
    found = law_residual(columns(known, TARGETS), known[:, None])
    scale = columns(known, TARGETS).std(0)
    assert (found.abs().amax(0) < 1e-4 * scale).all()
    idle = rows[rows[:, -1] == 0]
    assert law_residual(columns(idle, TARGETS), idle[:, None])[:, 0].abs().max() > 0.05


@pytest.mark.parametrize("target", range(5))
def test_each_law_notices_its_own_value(target: int, layers: list[Tensor]) -> None:
    known = layers[0][layers[0][:, -1] == 1]
    right = columns(known, TARGETS)
    sizes = []
    for share in (0.0, 0.1, 0.2):
        wrong = right.clone()
        wrong[:, target] += share * right[:, target].std()
        sizes.append(float(law_residual(wrong, known[:, None])[:, target].abs().mean()))
    assert sizes[0] < 1e-4 * sizes[1]
    assert sizes[2] > 1.5 * sizes[1]


def test_the_laws_are_one_statement_for_both_libraries() -> None:
    rng = np.random.default_rng(0)
    values = [rng.uniform(*each, 50) for each in ((20, 200), (-80, 10), (0, 150), (0, 1500))]
    by_numpy = quality(np, Conditions(*values))
    conditions = Conditions(*map(torch.from_numpy, values))
    by_torch = quality(torch, conditions)
    for left, right in zip(by_numpy, by_torch, strict=True):
        np.testing.assert_allclose(left, right.numpy(), rtol=1e-12)
    for left, right in zip(lawful(torch, conditions, by_torch), by_torch, strict=True):
        torch.testing.assert_close(left, right)
    assert 0 < by_numpy.porosity.min() <= by_numpy.porosity.max() <= 20


def test_a_cold_layer_without_cooling_has_a_finite_stress() -> None:
    still = Conditions(np.array([25.0]), np.array([0.0]), np.array([0.0]), np.array([0.0]))
    assert quality(np, still).stress[0] == pytest.approx(3500 * 68e-6 * 175)


def make_task(layers: list[Tensor], **weights: float) -> PrinterTask:
    scaler = fit_scaler([each.numpy() for each in layers])
    return PrinterTask(LossSettings(**weights), scaler, DYNAMICS, length=60, settled=10)


def standardised(task: PrinterTask, layers: list[Tensor], count: int = 8) -> Tensor:
    rows = [each[start : start + 80].numpy() for each in layers for start in range(100, 100 + 4 * count, 4)]
    return torch.from_numpy(np.stack([task._scaler.transform(each) for each in rows]))


def test_the_truth_has_no_loss_and_lambda_weighs_only_the_physics(layers: list[Tensor]) -> None:
    task = make_task(layers)
    series = standardised(task, layers)
    truth = task.truth(series)
    states = truth.series[:, :60, COLUMNS.index(STATES[0]) :][..., :2]
    perfect = {"states": states, "quality": truth.quality}
    assert max(float(part.max()) for part in task.parts(perfect, truth)) < 1e-6
    wrong = {"states": states + 1e-3, "quality": truth.quality * 1.1}
    parts = task.parts(wrong, truth)
    assert min(float(part.min()) for part in parts) > 1e-4

    class Answer(torch.nn.Module):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            assert inputs.shape[1:] == (60, 12)  # neither the future nor what is hidden
            return wrong

    losses = [
        float(make_task(layers, physics=weight).loss(Answer(), {"series": series})[0]) for weight in (0, 2)
    ]
    data = parts.quality.mean() + parts.states
    assert losses[0] == pytest.approx(float(data), rel=1e-5)
    assert losses[1] - losses[0] == pytest.approx(2 * float(parts.dynamics + parts.laws), rel=1e-4)


def test_targets_that_are_not_known_do_not_count(layers: list[Tensor]) -> None:
    task = make_task(layers)
    series = standardised(task, layers)
    series[:, -1, -1] = 0
    truth = task.truth(series)
    parts = task.parts({"states": truth.series[:, :60, 12:14], "quality": truth.quality + 1}, truth)
    assert parts.quality.tolist() == [0.0] * 5
    assert float(parts.laws) == 0.0


def test_model_and_loss_are_one_graph(layers: list[Tensor]) -> None:
    """No branch on a value of a tensor: compiled, nothing breaks out of the graph."""
    task = make_task(layers)
    model = ImplicitStateTCN(ModelSettings(channels=(4, 4), dilations=(1, 2), hidden=8, dropout=0))
    series = standardised(task, layers, count=1)
    eager = task.loss(model, {"series": series})[0]
    compiled = torch.compile(
        lambda each: task.loss(model, {"series": each})[0], backend="eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(series), eager)
