"""Labels as numbers that can be mixed."""

import torch
from torch import Tensor

from stoker.errors import UsageError


def mixable(x: Tensor, num_classes: int | None, *, mix_regression: bool) -> Tensor:
    """Labels as shares of classes, float [B, num_classes], or as they are if these are measured numbers.

    Args:
        x: class numbers [B] (whole), shares or 0 and 1 for each class [B, num_classes], or measured numbers.
        num_classes: says that there are classes, and how many.
        mix_regression: says that other floating labels are meant to be mixed linearly.

    Raises:
        UsageError: labels of which nobody said what mixing them means.
    """
    if num_classes is not None:
        if x.ndim == 1 and not x.is_floating_point():
            return _one_hot(x, num_classes)
        if x.ndim == 2 and x.shape[1] == num_classes:
            return x if x.is_floating_point() else x.to(torch.float32)
    if mix_regression and x.is_floating_point():
        return x
    if x.is_floating_point():
        raise UsageError(
            f"labels must be of a declared kind to be mixed, got {x.dtype} of shape {list(x.shape)} with "
            f"num_classes={num_classes}; for shares of K classes [B, K] pass num_classes=K, for regression "
            f"pass mix_regression=True if the mean of two targets is a target of the mixed sample"
        )
    raise UsageError(
        f"class labels must be whole numbers [B] or a number for each class [B, num_classes], got {x.dtype} "
        f"of shape {list(x.shape)} with num_classes={num_classes}; set num_classes, and give labels of every "
        f"element the role 'mask'"
    )


def mixed_linearly(x: Tensor, other: Tensor, lam: Tensor) -> Tensor:
    """x·λ + other·(1 - λ), at least in float32; lam [B]."""
    wide = torch.promote_types(x.dtype, torch.float32)
    share = lam.to(wide).view(-1, *[1] * (x.ndim - 1))
    return torch.lerp(other.to(wide), x.to(wide), share)


def check_num_classes(num_classes: int | None) -> int | None:
    """The number, if it can be one."""
    if num_classes is not None and num_classes < 1:
        raise UsageError(f"num_classes must be at least 1, got {num_classes}")
    return num_classes


def _one_hot(x: Tensor, num_classes: int) -> Tensor:
    """Float32 [B, num_classes]; torch's own asks the device for the largest label."""
    zeros = torch.zeros(x.shape[0], num_classes, device=x.device)
    if torch.compiler.is_compiling():
        return zeros.scatter(1, x[:, None].to(torch.int64), 1.0)
    try:
        return zeros.scatter(1, x[:, None].to(torch.int64), 1.0)
    except RuntimeError as error:
        raise UsageError(f"class labels must be from 0 to {num_classes - 1}, got: {error}") from None
