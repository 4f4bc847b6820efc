"""A simple hand: where the joints and tips of the fingers are, from the angles of 20 joints.

Our own model with average lengths, not a scan of anyone's hand: distances between two of its poses say
how far apart they look in millimetres, and no more.

The palm is flat. x points from the wrist to the fingers, y to the thumb's side, z out of the back of
the hand. A finger begins at a fixed base, with a frame of its own: ahead a, sideways s, down d (the way in
which it bends), all of length 1 and at right angles. With abduction β and three flexions that add up,
θ1 = φ1, θ2 = φ1 + φ2, θ3 = φ1 + φ2 + φ3, its three bones of lengths l end at

    p_k = base + Σ_{i ≤ k} l_i (cos θ_i (cos β a + sin β s) + sin θ_i d)

For the four fingers, a is x, s is y and d is -z: with all angles zero the hand is flat and its fingers are
straight. The thumb lies in the plane of the palm, 45° to the side; it bends across the palm, and its
abduction lifts it out of the plane.
"""

import math

import torch
from torch import Tensor

NUM_FINGERS, NUM_BONES = 5, 3

_HALF = math.sqrt(0.5)
_BASES = ((20.0, 25.0, -5.0), (88.0, 26.0, 0.0), (90.0, 4.0, 0.0), (84.0, -16.0, 0.0), (75.0, -34.0, 0.0))
_LENGTHS = (
    (46.0, 32.0, 27.0),
    (40.0, 25.0, 20.0),
    (45.0, 29.0, 21.0),
    (41.0, 28.0, 21.0),
    (33.0, 20.0, 18.0),
)
_FINGER = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0))
_THUMB = ((_HALF, _HALF, 0.0), (0.0, 0.0, 1.0), (_HALF, -_HALF, 0.0))
_FRAMES = (_THUMB, _FINGER, _FINGER, _FINGER, _FINGER)  # ahead, sideways, down


def landmarks(angles: Tensor) -> Tensor:
    """Ends of all bones in mm, [B, 5 fingers, 3 bones, 3 axes, T], of angles in rad, [B, 20, T].

    Differentiable; in the type of the angles. The last bone's end is the fingertip.
    """
    bend, direction = _bend(angles)
    lengths = angles.new_tensor(_LENGTHS)[..., None]
    reach = (lengths * bend.cos()).cumsum(2)  # of the bones so far, along the finger's direction
    depth = (lengths * bend.sin()).cumsum(2)
    return _placed(reach[:, :, :, None], depth[:, :, :, None], direction[:, :, None])


def fingertips(angles: Tensor) -> Tensor:
    """The five tips in mm, [B, 5, 3, T], of angles in rad, [B, 20, T]."""
    bend, direction = _bend(angles)
    lengths = angles.new_tensor(_LENGTHS)[..., None]
    reach = (lengths * bend.cos()).sum(2, keepdim=True)
    depth = (lengths * bend.sin()).sum(2, keepdim=True)
    return _placed(reach, depth, direction)


def _bend(angles: Tensor) -> tuple[Tensor, Tensor]:
    """How far each bone is bent in all, [B, 5, 3, T]; where each finger would point unbent, [B, 5, 3, T]."""
    fingers = angles.reshape(len(angles), NUM_FINGERS, 4, -1)
    # the thumb's first two are flexion, abduction; the others' abduction, flexion
    abduction = torch.cat([fingers[:, :1, 1], fingers[:, 1:, 0]], 1)[:, :, None]
    first = torch.cat([fingers[:, :1, 0], fingers[:, 1:, 1]], 1)
    second = first + fingers[:, :, 2]
    bend = torch.stack([first, second, second + fingers[:, :, 3]], 2)
    ahead, sideways, _ = _frames(angles)
    return bend, abduction.cos() * ahead + abduction.sin() * sideways


def _placed(reach: Tensor, depth: Tensor, direction: Tensor) -> Tensor:
    """Points at a reach along the direction and a depth down from each finger's base."""
    shape = (NUM_FINGERS, *[1] * (direction.dim() - 4), 3, 1)
    down = _frames(direction)[2].reshape(shape)
    return direction.new_tensor(_BASES).reshape(shape) + reach * direction + depth * down


def _frames(like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ahead, sideways and down of each finger, [5, 3, 1] each."""
    ahead, sideways, down = like.new_tensor(_FRAMES)[..., None].unbind(1)
    return ahead, sideways, down
