import math

import pytest
import torch

from stoker.recipes.emg_pose import JOINTS
from stoker.recipes.emg_pose._hand import fingertips, landmarks

RIGHT = math.pi / 2
HALF = math.sqrt(0.5)


def tips(**angles: float) -> dict[str, list[float]]:
    """Tips by finger, of a hand that is flat but for these angles."""
    pose = torch.zeros(1, 20, 1, dtype=torch.float64)
    for name, angle in angles.items():
        pose[0, JOINTS.index(name)] = angle
    found = fingertips(pose)[0, :, :, 0].tolist()
    return dict(zip(("thumb", "index", "middle", "ring", "pinky"), found, strict=True))


def test_a_flat_hand_is_as_long_as_its_bones() -> None:
    found = tips()
    assert found["index"] == pytest.approx([88 + 40 + 25 + 20, 26, 0])
    assert found["middle"] == pytest.approx([90 + 45 + 29 + 21, 4, 0])
    assert found["thumb"] == pytest.approx([20 + 105 * HALF, 25 + 105 * HALF, -5])


def test_bent_joints_carry_what_lies_beyond_them() -> None:
    assert tips(INDEX_MCP_FE=RIGHT)["index"] == pytest.approx([88, 26, -85])
    assert tips(INDEX_PIP_FE=RIGHT)["index"] == pytest.approx([88 + 40, 26, -45])
    assert tips(INDEX_DIP_FE=RIGHT)["index"] == pytest.approx([88 + 65, 26, -20])
    fist = tips(RING_MCP_FE=RIGHT, RING_PIP_FE=RIGHT, RING_DIP_FE=RIGHT)["ring"]
    assert fist == pytest.approx([84 - 28, -16, -41 + 21])
    assert tips(PINKY_MCP_AA=RIGHT)["pinky"] == pytest.approx([75, -34 + 71, 0])


def test_the_thumb_bends_across_the_palm_and_lifts_out_of_it() -> None:
    assert tips(THUMB_CMC_FE=RIGHT)["thumb"] == pytest.approx([20 + 105 * HALF, 25 - 105 * HALF, -5])
    assert tips(THUMB_CMC_AA=RIGHT)["thumb"] == pytest.approx([20, 25, 100])
    assert tips(THUMB_IP_FE=RIGHT)["thumb"] == pytest.approx([20 + 105 * HALF, 25 + (78 - 27) * HALF, -5])


def test_other_fingers_do_not_move() -> None:
    assert tips(INDEX_MCP_FE=1.0)["ring"] == tips()["ring"]


def test_tips_are_the_last_landmarks_and_bones_keep_their_lengths() -> None:
    poses = torch.randn(3, 20, 7, dtype=torch.float64)
    points = landmarks(poses)
    assert points.shape == (3, 5, 3, 3, 7)
    torch.testing.assert_close(points[:, :, -1], fingertips(poses))
    lengths = torch.linalg.vector_norm(points[:, :, 1:] - points[:, :, :-1], dim=3)
    expected = torch.tensor([[32.0, 27], [25, 20], [29, 21], [28, 21], [20, 18]], dtype=torch.float64)
    torch.testing.assert_close(lengths, expected[None, :, :, None].expand(3, 5, 2, 7))


def test_gradients_are_those_of_differences() -> None:
    poses = torch.randn(2, 20, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fingertips, (poses,))
