"""Cross-entropy, Dice and focal loss of pixels whose class is known.

Shapes: logits [B, 19, H, W], mask [B, H, W] of any whole-number type with IGNORE where nothing is known.

With p the probability of the true class of a pixel, cross-entropy is the mean of -log p over known pixels,
focal loss that of -a (1 - p)^g log p. Dice is 1 - the mean over classes c of (2 I + e) / (P + T + e), where T
counts the pixels of class c, P adds up the probabilities of c over known pixels, and I over those of class c.
The mean is over the classes that a sample has: a class that is not there would count as wholly missed,
however small its P.
"""

import torch
from torch import Tensor

from stoker.recipes.face_parsing._classes import IGNORE, NUM_CLASSES
from stoker.recipes.face_parsing._settings import LossSettings

_EPSILON = 1.0


def sample_losses(logits: Tensor, mask: Tensor, settings: LossSettings) -> Tensor:
    """The weighted sum of each sample's losses, [B] in float32; 0 for one of which nothing is known."""
    target = mask.long()
    known = target != IGNORE
    target = target.where(known, 0)
    log_all = logits.float().log_softmax(1)
    entropy = -log_all.gather(1, target[:, None])[:, 0]  # [B, H, W]
    weights = known.float()
    if settings.class_weights is not None:
        weights = weights * entropy.new_tensor(settings.class_weights)[target]
    total = entropy.new_zeros(len(entropy))
    if settings.cross_entropy:
        total = total + settings.cross_entropy * _mean(entropy, weights)
    if settings.focal:
        missed = (1 - (-entropy).exp()).clamp(min=0) ** settings.focal_gamma
        total = total + settings.focal * settings.focal_alpha * _mean(missed * entropy, weights)
    if settings.dice:
        total = total + settings.dice * _dice(log_all, entropy, target, known)
    return total


def _dice(log_all: Tensor, entropy: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Of each sample, [B]; sums are taken class by class, without a tensor of zeros and ones."""
    there = known.float()
    places = target.flatten(1)
    nothing = entropy.new_zeros(len(entropy), NUM_CLASSES)
    hit = nothing.scatter_add(1, places, ((-entropy).exp() * there).flatten(1))
    true = nothing.scatter_add(1, places, there.flatten(1))
    predicted = torch.einsum("bchw,bhw->bc", log_all.exp(), there)
    score = (2 * hit + _EPSILON) / (predicted + true + _EPSILON)
    present = (true > 0).float()
    return ((1 - score) * present).sum(1) / present.sum(1).clamp(min=1)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean over each sample's pixels, [B]."""
    return (values * weights).sum((1, 2)) / weights.sum((1, 2)).clamp(min=1e-6)
