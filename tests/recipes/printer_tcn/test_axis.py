import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from stoker.errors import UsageError
from stoker.recipes.printer_tcn import Axis

PRINTER = Axis(0.485, 150_000.0, 25.0)
CRITICAL = Axis(2.0, 50.0, 20.0)  # c² = 4 k m
OVERDAMPED = Axis(1.0, 100.0, 90.0)


def some_acceleration(count: int = 40) -> NDArray[np.float64]:
    """Of a reference that starts at rest."""
    rng = np.random.default_rng(0)
    return np.concatenate([[0.0], rng.uniform(-800, 800, count - 1)])


@pytest.mark.parametrize("axis", [PRINTER, CRITICAL, OVERDAMPED])
def test_the_motion_is_that_of_the_differential_equation(axis: Axis) -> None:
    rate, pull = 100.0, some_acceleration()
    times = np.arange(len(pull)) / rate

    def slope(time: float, state: NDArray[np.float64]) -> list[float]:
        push = np.interp(time, times, pull)
        error, velocity = state
        return [velocity, -(axis.damping * velocity + axis.stiffness * error) / axis.mass - push]

    found = axis.simulate(pull, rate)
    state = np.zeros(2)
    for step in range(len(pull) - 1):  # a step at a time: the acceleration has a corner at each sample
        span = (times[step], times[step + 1])
        state = solve_ivp(slope, span, state, rtol=1e-10, atol=1e-14, method="DOP853").y[:, -1]
        np.testing.assert_allclose(found[step + 1], state, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("axis", [PRINTER, CRITICAL, OVERDAMPED])
@pytest.mark.parametrize("rate", [50.0, 100.0, 1000.0])
def test_the_recurrence_gives_the_same_errors_without_velocities(axis: Axis, rate: float) -> None:
    pull = some_acceleration()
    error = axis.simulate(pull, rate)[:, 0]
    each = axis.recurrence(rate)
    expected = each.trace * error[1:-1] - each.determinant * error[:-2]
    expected += sum(weight * pull[2 - lag : len(pull) - lag] for lag, weight in enumerate(each.weights))
    np.testing.assert_allclose(error[2:], expected, rtol=1e-9, atol=1e-12 * np.abs(error).max())


def test_under_constant_acceleration_the_belt_stretches_by_hookes_law() -> None:
    error = PRINTER.simulate(np.full(400, 500.0), 100.0)[:, 0]
    assert error[-1] == pytest.approx(-500 * PRINTER.mass / PRINTER.stiffness)
    each = PRINTER.recurrence(100.0)
    assert each.gain / (1 - each.trace + each.determinant) == pytest.approx(-PRINTER.mass / PRINTER.stiffness)


def test_it_rings_at_its_resonance() -> None:
    rate = 10_000.0
    push = np.zeros(4000)
    push[:20] = 1000.0
    error = PRINTER.simulate(push, rate)[200:, 0]
    strongest = np.fft.rfftfreq(len(error), 1 / rate)[np.abs(np.fft.rfft(error)).argmax()]
    assert strongest == pytest.approx(math.sqrt(PRINTER.stiffness / PRINTER.mass) / (2 * math.pi), abs=2)


def test_an_axis_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="mass and stiffness above 0"):
        Axis(0.0, 1.0, 1.0)
