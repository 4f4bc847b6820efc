"""Errors of predicted poses over any number of batches, in 1 kB of memory.

Shapes: prediction and target [B, 20, T] in rad, valid [B, T] where the true pose is known.

A velocity is the difference of two poses `derivative_steps` apart over the time between them, an
acceleration that of two such velocities, a jerk that of two accelerations; their errors are those of
the prediction's against the target's, where all poses that they are made of are known. At 2000 Hz the
difference of neighbours would measure the rounding of float32 instead. Distances in mm are those of the
simple hand in _hand.py, of every tenth pose of a window.
"""

import torch
from torch import Tensor
from torchmetrics import Metric

from stoker.recipes.emg_pose._hand import landmarks
from stoker.recipes.emg_pose._layout import FINGERS, GROUPS, JOINTS, SAMPLE_RATE

DERIVATIVES = ("velocity", "acceleration", "jerk")
LANDMARK_STEPS = 10  # between two poses whose landmarks are compared: hands move slowly, and it is dear


class PoseErrors(Metric):
    """``mae``, ``mse``, ``rmse`` of angles (rad), by joint, finger and group; see `pose_values`.

    Sums are in float64 and add up over ranks; nothing waits for the device.
    """

    full_state_update = False
    higher_is_better = False
    sums: Tensor
    counts: Tensor

    def __init__(self, derivative_steps: int = 40) -> None:
        super().__init__(compute_with_cache=False)
        self.derivative_steps = derivative_steps
        num_kinds = 3 + len(DERIVATIVES)
        self.add_state("sums", torch.zeros(num_kinds, len(JOINTS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(num_kinds, dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def update_called(self) -> bool:
        """Always: a rank may have got no batch."""
        return True

    def update(self, prediction: Tensor, target: Tensor, valid: Tensor) -> None:
        """Take in a batch."""
        sums, counts = pose_sums(prediction, target, valid, self.derivative_steps)
        self.sums += sums
        self.counts += counts

    def compute(self) -> dict[str, Tensor]:
        """The values over all batches."""
        return pose_values(self.sums, self.counts)


class WholePoseErrors(Metric):
    """The same of all predictions, kept until the end: for debugging, in one process; memory grows."""

    full_state_update = False
    higher_is_better = False
    predictions: list[Tensor]
    targets: list[Tensor]
    valids: list[Tensor]

    def __init__(self, derivative_steps: int = 40) -> None:
        super().__init__(compute_with_cache=False)
        self.derivative_steps = derivative_steps
        for name in ("predictions", "targets", "valids"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, prediction: Tensor, target: Tensor, valid: Tensor) -> None:
        """Keep a batch."""
        self.predictions.append(prediction.detach())
        self.targets.append(target.detach())
        self.valids.append(valid.detach())

    def compute(self) -> dict[str, Tensor]:
        """The values of all that was kept."""
        whole = _joined(self.predictions), _joined(self.targets), _joined(self.valids)
        return pose_values(*pose_sums(*whole, self.derivative_steps))


def pose_sums(prediction: Tensor, target: Tensor, valid: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Sums of errors [kinds, 20] and how many poses each is of, [kinds].

    Kinds: absolute, squared, velocity, acceleration, jerk, and distances, of which the first 15 numbers
    are those of landmarks, finger by finger.
    """
    guess, truth = prediction.detach().double(), target.detach().double()
    error = guess - truth
    sums, counts = [], []

    def add(values: Tensor, where: Tensor) -> None:  # values [B, 20, T], where [B, T]
        known = where.double()
        sums.append(torch.bmm(values, known[..., None]).sum((0, 2)))
        counts.append(known.sum())

    add(error.abs(), valid)
    add(error.square(), valid)
    whole = valid
    for _ in DERIVATIVES:
        error = (error[..., step:] - error[..., :-step]) * (SAMPLE_RATE / step)
        whole = whole[..., step:] & whole[..., :-step]
        add(error.abs(), whole)
    every = LANDMARK_STEPS
    apart = landmarks(guess[..., ::every]) - landmarks(truth[..., ::every])  # [B, 5, 3, 3, T]
    distance = torch.linalg.vector_norm(apart, dim=3).flatten(1, 2)  # [B, 15, T]
    add(torch.nn.functional.pad(distance, (0, 0, 0, len(JOINTS) - distance.shape[1])), valid[:, ::every])
    return torch.stack(sums), torch.stack(counts)


def pose_values(sums: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Values by name: ``mae``, ``mae_degrees``, ``mse``, ``rmse``, derivatives' errors, distances in mm.

    ``mae/THUMB_CMC_FE`` is that of a joint, ``mae/thumb`` of a finger, ``mae/proximal`` of a group.
    What there was nothing of is NaN.
    """
    means = sums / counts[:, None]
    absolute, squared = means[0], means[1]
    distances = means[-1, :15].reshape(5, 3)
    values = {
        "mae": absolute.mean(),
        "mae_degrees": absolute.mean().rad2deg(),
        "mse": squared.mean(),
        "rmse": squared.mean().sqrt(),
    }
    values |= {f"{name}_mae": means[2 + i].mean() for i, name in enumerate(DERIVATIVES)}
    values |= {"fingertip_mm": distances[:, -1].mean(), "landmark_mm": distances.mean()}
    values |= {f"mae/{name}": absolute[list(joints)].mean() for name, joints in (FINGERS | GROUPS).items()}
    values |= {f"fingertip_mm/{name}": distances[i, -1] for i, name in enumerate(FINGERS)}
    values |= {f"mae/{name}": absolute[i] for i, name in enumerate(JOINTS)}
    return values


def _joined(parts: list[Tensor] | Tensor) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(parts)
