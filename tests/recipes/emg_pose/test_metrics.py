import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from stoker.recipes.emg_pose import FINGERS, GROUPS, JOINTS
from stoker.recipes.emg_pose._hand import landmarks
from stoker.recipes.emg_pose._metrics import PoseErrors, WholePoseErrors
from support.ranks import run_ranks

STEP = 4


def poses(count: int = 13, num_steps: int = 60) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(count, 20, num_steps, generator=generator).cumsum(-1) / 10
    prediction = target + torch.randn(count, 20, num_steps, generator=generator) / 5
    valid = torch.rand(count, num_steps, generator=generator) < 0.8
    return prediction, torch.where(valid[:, None], target, 0.0), valid


def by_numpy(prediction: torch.Tensor, target: torch.Tensor, valid: torch.Tensor) -> dict[str, float]:
    """All values, window by window and joint by joint, of whole arrays."""
    guess, truth = prediction.double().numpy(), target.double().numpy()
    known = valid.numpy()
    error = np.moveaxis(guess - truth, 1, -1)[known]  # [poses, 20]
    values = {
        "mae": np.abs(error).mean(),
        "mae_degrees": np.degrees(np.abs(error).mean()),
        "mse": (error**2).mean(),
        "rmse": math.sqrt((error**2).mean()),
    }
    for name, joints in {**FINGERS, **GROUPS}.items():
        values[f"mae/{name}"] = np.abs(error[:, list(joints)]).mean()
    for i, name in enumerate(JOINTS):
        values[f"mae/{name}"] = np.abs(error[:, i]).mean()
    for order, name in enumerate(("velocity", "acceleration", "jerk"), 1):
        values[f"{name}_mae"] = _derivative_error(guess, truth, known, order)
    apart = landmarks(prediction.double()) - landmarks(target.double())
    distance = np.linalg.norm(apart.numpy(), axis=3)[..., ::10]  # [B, 5, 3, T]
    distance = np.moveaxis(distance, -1, 1)[known[:, ::10]]
    values |= {"fingertip_mm": distance[:, :, 2].mean(), "landmark_mm": distance.mean()}
    values |= {f"fingertip_mm/{name}": distance[:, i, 2].mean() for i, name in enumerate(FINGERS)}
    return {name: float(value) for name, value in values.items()}


def _derivative_error(
    guess: NDArray[np.float64], truth: NDArray[np.float64], known: NDArray[np.bool_], order: int
) -> float:
    errors = []
    for window in range(len(guess)):
        for start in range(guess.shape[-1] - order * STEP):
            places = start + STEP * np.arange(order + 1)
            if known[window, places].all():
                differences = [np.diff(each[window][:, places], order) for each in (guess, truth)]
                errors.append(np.abs(differences[0] - differences[1])[:, 0] * (2000 / STEP) ** order)
    return float(np.mean(errors))


def values(metric: Any) -> dict[str, float]:
    return {name: float(value) for name, value in metric.compute().items()}


@pytest.mark.parametrize("make", [PoseErrors, WholePoseErrors])
def test_batches_of_any_size_give_what_whole_arrays_give(make: Any) -> None:
    data = poses()
    expected = by_numpy(*data)
    for size in (1, 5, 13):
        metric = make(STEP)
        for start in range(0, 13, size):
            metric.update(*(each[start : start + size] for each in data))
        assert values(metric) == pytest.approx(expected, rel=1e-9)


def test_memory_does_not_grow() -> None:
    metric = PoseErrors(STEP)
    sizes = set()
    for _ in range(3):
        metric.update(*poses(4))
        sizes.add(metric.sums.numel() + metric.counts.numel())
    assert len(sizes) == 1


def test_what_is_not_known_does_not_count() -> None:
    prediction, target, valid = poses()
    metric = PoseErrors(STEP)
    metric.update(torch.where(valid[:, None], prediction, 1e6), target, valid)
    expected = PoseErrors(STEP)
    expected.update(prediction, target, valid)
    assert values(metric)["mae"] == pytest.approx(values(expected)["mae"])


def test_without_a_known_pose_there_is_no_value() -> None:
    prediction, target, valid = poses()
    metric = PoseErrors(STEP)
    assert all(math.isnan(value) for value in values(metric).values())
    metric.update(prediction, target, torch.zeros_like(valid))
    assert all(math.isnan(value) for value in values(metric).values())


def test_windows_too_short_for_a_jerk_have_none() -> None:
    metric = PoseErrors(STEP)
    metric.update(*poses(num_steps=2 * STEP + 1))
    found = values(metric)
    assert math.isnan(found["jerk_mae"])
    assert found["acceleration_mae"] > 0


def _measure_on_ranks() -> dict[str, dict[str, float]]:
    data, rank = poses(), dist.get_rank()
    shared, lonely = PoseErrors(STEP), PoseErrors(STEP)
    for start in range(3 * rank, 13, 3 * dist.get_world_size()):
        shared.update(*(each[start : start + 3] for each in data))
    if rank == 1:
        lonely.update(*data)
    return {"shared": values(shared), "lonely": values(lonely)}


def test_ranks_give_what_one_process_gives_also_if_one_saw_nothing() -> None:
    expected = by_numpy(*poses())
    for found in run_ranks(2, _measure_on_ranks):
        assert found["shared"] == pytest.approx(expected, rel=1e-9)
        assert found["lonely"] == pytest.approx(expected, rel=1e-9)
