import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch.nn import functional

from stoker.recipes.cardiac_ct._model import CardiacNet, Statistics, fit_statistics
from stoker.recipes.cardiac_ct._settings import LabelSettings, LossSettings, ModelSettings
from stoker.recipes.cardiac_ct._task import CardiacTask, label_loss

SMALL = ModelSettings(widths=(4, 8), hidden=8)
STATISTICS = Statistics((60.0,), (10.0,), (3.0,))


def make_model() -> CardiacNet:
    torch.manual_seed(0)
    return CardiacNet(SMALL, num_regressions=1, num_decisions=1, statistics=STATISTICS)


def test_a_new_model_predicts_about_the_mean_and_nothing_of_decisions() -> None:
    found = make_model().eval()(torch.rand(3, 1, 20, 24, 16))
    assert found.shape == (3, 2)
    assert (found[:, 0] - 60).abs().max() < 3
    assert found[:, 1].abs().max() < 0.3


def test_what_a_sample_gets_does_not_depend_on_its_batch() -> None:
    model = make_model().eval()
    x = torch.rand(4, 1, 16, 16, 16)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]))


def test_statistics_are_those_of_known_labels_and_part_of_the_state() -> None:
    values = np.array([[50, 1], [60, 0], [np.nan, 0], [70, 0], [np.nan, np.nan]], np.float32)
    found = fit_statistics(values, num_regressions=1, balance=True)
    assert found.mean == (60.0,)
    assert found.std[0] == pytest.approx(np.std([50, 60, 70]))
    assert found.positive_weight == (3.0,)
    assert fit_statistics(values, num_regressions=1, balance=False).positive_weight == (1.0,)
    nothing = fit_statistics(np.full((2, 2), np.nan, np.float32), num_regressions=1, balance=True)
    assert nothing == Statistics((0.0,), (1.0,), (1.0,))
    other = CardiacNet(SMALL, num_regressions=1, num_decisions=1)
    other.load_state_dict(make_model().state_dict())
    assert other.statistics == STATISTICS


def test_the_loss_is_that_of_known_labels_in_standard_deviations() -> None:
    prediction = torch.tensor([[50.0, 0.5], [70.0, -1.0], [60.0, 2.0]], requires_grad=True)
    target = torch.tensor([[55.0, 1.0], [torch.nan, 0.0], [40.0, torch.nan]])
    found = label_loss(prediction, target, LossSettings(classification=0.5), STATISTICS)
    squares = (0.5**2 + 2.0**2) / 3
    entropy = functional.binary_cross_entropy_with_logits(
        torch.tensor([0.5, -1.0]),
        torch.tensor([1.0, 0.0]),
        pos_weight=torch.tensor(3.0),
        reduction="sum",
    )
    assert found.item() == pytest.approx(squares + 0.5 * entropy.item() / 3)
    found.backward()  # type: ignore[no-untyped-call]
    assert prediction.grad is not None
    assert prediction.grad[1, 0] == prediction.grad[2, 1] == 0
    assert prediction.grad.isfinite().all()


def test_a_kind_of_label_can_weigh_nothing_or_be_absent() -> None:
    prediction, target = torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    none = LossSettings(regression=0, classification=0)
    assert label_loss(prediction, target, none, STATISTICS) == 0
    only = label_loss(prediction[:, :1], target[:, :1], LossSettings(), Statistics((0.0,), (1.0,), ()))
    assert only == 2.5


def test_metrics_are_those_of_scikit_learn_over_known_labels() -> None:
    rng = np.random.default_rng(0)
    target = np.stack([rng.normal(60, 10, 200), rng.integers(0, 2, 200)], 1)
    guess = target + rng.normal(0, 1, target.shape) * np.array([4, 1.5]) - np.array([0, 0.5])
    target[rng.random(target.shape) < 0.2] = np.nan
    task = CardiacTask(LabelSettings(), LossSettings(), STATISTICS)
    metrics = task.metrics()
    for part in np.split(np.arange(200), [7, 30, 31, 150]):
        batch = {"targets": torch.tensor(target[part], dtype=torch.float32)}
        for metric in metrics.values():
            metric.update(*task.measured(torch.tensor(guess[part], dtype=torch.float32), batch))
    lvef, stenosis = (metrics[name].compute() for name in ("lvef", "AS_maybe"))
    known = ~np.isnan(target[:, 0])
    truth, said = target[known, 0], guess[known, 0]
    assert lvef["mae"] == pytest.approx(reference.mean_absolute_error(truth, said), rel=1e-5)
    assert lvef["mse"] == pytest.approx(reference.mean_squared_error(truth, said), rel=1e-5)
    assert lvef["r2"] == pytest.approx(reference.r2_score(truth, said), rel=1e-4)
    known = ~np.isnan(target[:, 1])
    truth, said = target[known, 1], guess[known, 1]
    assert stenosis["accuracy"] == pytest.approx(reference.accuracy_score(truth, said >= 0))
    assert stenosis["f1"] == pytest.approx(reference.f1_score(truth, said >= 0))
    assert stenosis["auroc"] == pytest.approx(reference.roc_auc_score(truth, said), abs=2e-3)


def test_a_batch_without_a_known_label_changes_nothing() -> None:
    task = CardiacTask(LabelSettings(), LossSettings(), STATISTICS)
    metrics = task.metrics()
    known = torch.tensor([[55.0, 1.0], [65.0, 0.0]])
    for target in (known, torch.full((2, 2), torch.nan)):
        for metric in metrics.values():
            metric.update(known + 1, target)
    assert metrics["lvef"].compute()["mae"] == 1
    assert metrics["AS_maybe"].compute()["accuracy"] == 0.5


def test_predictions_are_numbers_and_probabilities() -> None:
    model = make_model().eval()
    task = CardiacTask(LabelSettings(), LossSettings(), STATISTICS)
    x = torch.rand(2, 1, 16, 16, 16)
    found = task.predict(model, {"x": x})
    raw = model(x)
    torch.testing.assert_close(found, torch.stack([raw[:, 0], raw[:, 1].sigmoid()], 1))
