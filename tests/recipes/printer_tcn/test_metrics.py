import numpy as np
import pytest
import torch
from sklearn.metrics import (
    mean_absolute_error,
    mean_absolute_percentage_error,
    r2_score,
    root_mean_squared_error,
)

from stoker.recipes.printer_tcn import STATES, TARGETS
from stoker.recipes.printer_tcn._metrics import PrinterErrors, merge

MEAN = (0.5, 15.0, 5.0, 0.2, 0.6)


def batches(count: int = 3) -> list[tuple[torch.Tensor, ...]]:
    rng = torch.Generator().manual_seed(0)
    found: list[tuple[torch.Tensor, ...]] = []
    for number in range(count):
        size = 7 + number
        truth = torch.randn(size, 5, generator=rng) + 100 + torch.arange(5)
        guess = truth + 0.3 * torch.randn(size, 5, generator=rng) + 0.1
        known = (torch.rand(size, generator=rng) < 0.6).float()
        states = torch.randn(size, 11, 2, generator=rng)
        guessed = states + 0.2 * torch.randn(size, 11, 2, generator=rng)
        residual = torch.randn(size, 9, 2, generator=rng)
        found.append((guess, truth, known, guessed, states, residual))
    return found


def test_values_are_those_of_other_libraries() -> None:
    metric = PrinterErrors(MEAN)
    given = batches()
    for batch in given:
        metric.update(*batch)
    values = metric.compute()
    guess, truth, known, guessed, states, residual = (
        torch.cat(each).double().numpy() for each in zip(*given, strict=True)
    )
    chosen = known == 1
    truths = {name: truth[chosen, i] for i, name in enumerate(TARGETS)}
    guesses = {name: guess[chosen, i] for i, name in enumerate(TARGETS)}
    truths |= {name: states[..., i].ravel() for i, name in enumerate(STATES)}
    guesses |= {name: guessed[..., i].ravel() for i, name in enumerate(STATES)}
    for name, true in truths.items():
        said = guesses[name]
        expected = {
            "rmse": root_mean_squared_error(true, said),
            "mae": mean_absolute_error(true, said),
            "r2": r2_score(true, said),
            "mape": 100 * mean_absolute_percentage_error(true, said),
            "correlation": np.corrcoef(true, said)[0, 1],
            "bias": (said - true).mean(),
        }
        for kind, value in expected.items():
            assert float(values[f"{kind}/{name}"]) == pytest.approx(value, rel=1e-9), (kind, name)
    fractions = [
        root_mean_squared_error(truths[name], guesses[name])
        / root_mean_squared_error(truths[name], np.full_like(truths[name], mean))
        for name, mean in zip(TARGETS, MEAN, strict=True)
    ]
    assert float(values["fraction_of_mean"]) == pytest.approx(np.mean(fractions), rel=1e-9)
    assert float(values["r2"]) == pytest.approx(np.mean([values[f"r2/{name}"] for name in TARGETS]))
    assert float(values["residual"]) == pytest.approx(np.sqrt((residual**2).mean()))


def test_ranks_add_up_and_one_without_data_changes_nothing() -> None:
    whole, parts = PrinterErrors(MEAN), [PrinterErrors(MEAN) for _ in range(3)]
    for part, batch in zip(parts, batches(), strict=True):
        whole.update(*batch)
        part.update(*batch)
    merged = merge(
        merge(merge(parts[0].moments, parts[1].moments), parts[2].moments), PrinterErrors(MEAN).moments
    )
    torch.testing.assert_close(merged, whole.moments)


def test_without_data_values_are_not_numbers() -> None:
    values = PrinterErrors(MEAN).compute()
    assert all(torch.isnan(value) for value in values.values())


def test_always_the_mean_is_a_fraction_of_one() -> None:
    metric = PrinterErrors(MEAN)
    _, truth, _, guessed, states, residual = batches(1)[0]
    constant = torch.tensor(MEAN).expand_as(truth)
    metric.update(constant, truth, torch.ones(len(truth)), guessed, states, residual)
    assert float(metric.compute()["fraction_of_mean"]) == pytest.approx(1.0, rel=1e-6)
