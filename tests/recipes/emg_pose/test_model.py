from typing import Any

import pytest
import torch

from stoker.recipes.emg_pose._data import Statistics
from stoker.recipes.emg_pose._model import PoseNet
from stoker.recipes.emg_pose._settings import LossSettings, MeasuringSettings, ModelSettings
from stoker.recipes.emg_pose._task import PoseTask, pose_loss

TINY: dict[str, Any] = {"features": 16, "width": 4, "hidden": 8, "num_heads": 2}


@pytest.mark.parametrize("head", ["lstm", "attention"])
@pytest.mark.parametrize("output", ["position", "velocity"])
@pytest.mark.parametrize("num_steps", [500, 503, 41])
def test_there_is_a_pose_for_every_step(head: str, output: str, num_steps: int) -> None:
    settings = ModelSettings.model_validate({**TINY, "head": head, "output": output})
    model = PoseNet(settings, padding=(3, 2))
    assert model(torch.randn(2, 16, 3 + num_steps + 2)).shape == (2, 20, num_steps)


def test_context_is_used_and_cut_off() -> None:
    torch.manual_seed(0)
    wide = PoseNet(ModelSettings(**TINY), padding=(100, 60)).eval()
    plain = PoseNet(ModelSettings(**TINY), padding=(0, 0)).eval()
    plain.load_state_dict(wide.state_dict())
    emg = torch.randn(1, 16, 660)
    torch.testing.assert_close(wide(emg), plain(emg)[..., 100:600])
    changed = emg.clone()
    changed[..., 90:100] += 5
    assert not torch.equal(wide(changed), wide(emg))


def test_output_is_aligned_with_input_whatever_the_strides() -> None:
    """A burst of EMG changes the poses around it: as far to its left as to its right."""
    for strides, kernels in [((5, 2, 2), (11, 5, 5)), ((4, 2), (8, 6)), ((1,), (5,))]:
        torch.manual_seed(0)
        settings = ModelSettings.model_validate(
            {**TINY, "strides": strides, "kernels": kernels, "num_blocks": (0,) * len(strides)}
        )
        model = PoseNet(settings, padding=(0, 0)).eval()
        model.head = torch.nn.Linear(16, 16)  # sees one frame
        emg = torch.zeros(1, 16, 800)
        burst = emg.clone()
        burst[..., 400:440] = torch.randn(16, 40)
        touched = (model(burst) - model(emg)).abs().sum(1)[0] > 1e-9
        steps = touched.nonzero()[:, 0]
        left, right = 400 - int(steps[0]), int(steps[-1]) - 439
        assert abs(left - right) <= model.stride
        assert left <= 3 * model.stride


def test_a_new_model_predicts_near_the_mean_pose_of_standardised_emg() -> None:
    mean = tuple(float(i) / 10 for i in range(20))
    model = PoseNet(
        ModelSettings(**TINY), padding=(0, 0), statistics=Statistics((3.0,) * 16, (7.0,) * 16, mean)
    )
    found = model(3 + 7 * torch.randn(4, 16, 200))
    assert (found - torch.tensor(mean)[:, None]).abs().max() < 0.5
    assert torch.equal(model.state_dict()["angle_mean"], torch.tensor(mean))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"kernels": (3, 5, 5)}, "smaller than its stride"),
        ({"strides": (5, 2)}, "equally many"),
        ({"width": 7}, "multiple of width"),
        ({"head": "attention", "num_heads": 5}, "num_heads"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ModelSettings.model_validate(wrong)


def test_the_loss_is_that_of_known_poses_of_the_middle() -> None:
    weights = LossSettings(mae=1.0, mse=0.5, fingertip=0)
    target = torch.rand(2, 20, 30) + 0.1
    target[0, :, 10:] = 0  # inverse kinematics failed
    task = PoseTask(weights, MeasuringSettings(), (5, 3))
    guess = torch.rand(2, 20, 22)
    loss, prediction = task.loss(torch.nn.Identity(), {"emg": guess, "joint_angles": target})
    assert prediction is guess
    error = guess - target[..., 5:27]
    per_window = [
        error[0, :, :5].abs().mean() + 0.5 * error[0, :, :5].square().mean(),
        error[1].abs().mean() + 0.5 * error[1].square().mean(),
    ]
    torch.testing.assert_close(loss, torch.stack(per_window).mean())


def test_the_fingertip_part_is_a_distance_in_mm_with_finite_gradients() -> None:
    weights = LossSettings(mae=0, fingertip=0.01, fingertip_every=1)
    target = torch.zeros(1, 20, 4)
    guess = target.clone()
    guess[0, 5] = torch.pi / 2  # the index finger bent at its base: its tip moves by 85 · √2 mm
    guess.requires_grad_()
    loss = pose_loss(guess, target, torch.ones(1, 4, dtype=torch.bool), weights)
    assert float(loss.detach()) == pytest.approx(0.01 * 85 * 2**0.5 / 5, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert guess.grad is not None
    assert guess.grad.isfinite().all()


def test_a_batch_without_a_known_pose_costs_nothing() -> None:
    guess = torch.rand(2, 20, 8, requires_grad=True)
    loss = pose_loss(guess, torch.zeros(2, 20, 8), torch.zeros(2, 8, dtype=torch.bool), LossSettings())
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0
    assert guess.grad is not None
    assert not guess.grad.any()
