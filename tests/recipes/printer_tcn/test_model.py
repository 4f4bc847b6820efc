import pytest
import torch
from pydantic import ValidationError

from stoker.recipes.printer_tcn import COLUMNS, STATES, TARGETS, PrinterSettings, Scaler
from stoker.recipes.printer_tcn._model import ImplicitStateTCN
from stoker.recipes.printer_tcn._settings import ModelSettings

SMALL = ModelSettings(channels=(8, 8), dilations=(1, 2), hidden=16, dropout=0)
SCALER = Scaler(
    tuple(0.1 + 0.01 * i for i in range(len(COLUMNS))), tuple(0.2 + 0.1 * i for i in range(len(COLUMNS)))
)


@pytest.fixture
def model() -> ImplicitStateTCN:
    torch.manual_seed(0)
    return ImplicitStateTCN(SMALL, scaler=SCALER).eval()


def test_states_depend_on_nothing_later_and_on_no_more_than_the_receptive_field(
    model: ImplicitStateTCN,
) -> None:
    assert SMALL.receptive_field == 13
    inputs = torch.randn(1, 40, 12)
    before = model(inputs)["states"]
    inputs[:, 20] += 1.0
    changed = ((model(inputs)["states"] - before).abs().amax((0, 2)) > 0).tolist()
    assert changed == [20 <= step < 33 for step in range(40)]


def test_estimates_of_one_step_agree_between_windows(model: ImplicitStateTCN) -> None:
    inputs = torch.randn(1, 60, 12)
    whole, part = model(inputs)["states"], model(inputs[:, 17:])["states"]
    torch.testing.assert_close(whole[:, 17 + 12 :], part[:, 12:])


def test_bounded_quality_stays_in_its_bounds_and_stress_is_free(model: ImplicitStateTCN) -> None:
    found = model(100 * torch.randn(256, 20, 12))["quality"]
    assert found.shape == (256, 5)
    for name, limit in (("adhesion_ratio", 1.0), ("porosity", 100.0), ("quality_score", 1.0)):
        column = found[:, TARGETS.index(name)]
        assert column.min() >= 0
        assert column.max() <= limit
    assert found[:, TARGETS.index("internal_stress")].min() < 0


def test_outputs_of_zero_are_the_training_means(model: ImplicitStateTCN) -> None:
    with torch.no_grad():
        for layer in (model.states, *model.heads):
            assert isinstance(layer, torch.nn.Linear)
            layer.weight.zero_()
            layer.bias.zero_()
    found = model(torch.randn(3, 20, 12))
    expected = torch.tensor(SCALER.of(TARGETS).mean)
    expected[2] = max(float(expected[2]), 1.0)  # a mean share within 1 … 99 % of the bounds
    torch.testing.assert_close(found["quality"][0], expected)
    torch.testing.assert_close(found["states"][0, 0], torch.tensor(SCALER.of(STATES).mean))


def test_a_state_brings_the_scaler_along(model: ImplicitStateTCN) -> None:
    other = ImplicitStateTCN(SMALL)
    assert other.scaler != SCALER
    other.load_state_dict(model.state_dict())
    assert other.scaler == SCALER


def test_variances_are_learned_with_the_weights_if_asked_for() -> None:
    model = ImplicitStateTCN(SMALL, adaptive=True)
    assert "log_variance" in dict(model.named_parameters())
    assert model(torch.randn(2, 20, 12))["log_variance"].shape == (6,)
    assert "log_variance" not in ImplicitStateTCN(SMALL)(torch.randn(2, 20, 12))


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match="equally many"):
        ModelSettings(channels=(8,), dilations=(1, 2))
    with pytest.raises(ValidationError, match=r"windows\.length must be at least 31"):
        PrinterSettings.model_validate({"windows": {"length": 30}})
