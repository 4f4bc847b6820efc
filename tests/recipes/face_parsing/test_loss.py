from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoker.recipes.face_parsing import IGNORE
from stoker.recipes.face_parsing._loss import sample_losses
from stoker.recipes.face_parsing._settings import LossSettings
from stoker.recipes.face_parsing._task import FaceTask


def example(num_ignored: int = 60) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    mask = torch.randint(0, 19, (3, 12, 12)).to(torch.uint8)
    mask[1] = mask[1] % 4  # most classes are absent
    mask.view(-1)[torch.randperm(mask.numel())[:num_ignored]] = IGNORE
    return torch.randn(3, 19, 12, 12), mask


def losses(**weights: Any) -> Tensor:
    logits, mask = example()
    return sample_losses(logits, mask, LossSettings(**{"cross_entropy": 0, "dice": 0, **weights}))


@pytest.mark.parametrize("weights", [None, tuple(range(1, 20))])
def test_cross_entropy_is_torchs_of_each_sample(weights: tuple[int, ...] | None) -> None:
    logits, mask = example()
    expected = [
        functional.cross_entropy(
            logits[i : i + 1],
            mask[i : i + 1].long(),
            ignore_index=IGNORE,
            weight=None if weights is None else torch.tensor(weights).float(),
        )
        for i in range(3)
    ]
    torch.testing.assert_close(losses(cross_entropy=2, class_weights=weights), 2 * torch.stack(expected))


def test_dice_is_the_mean_over_the_classes_that_are_there() -> None:
    logits, mask = example()
    expected = []
    for each, its_mask in zip(logits.softmax(1), mask, strict=True):
        known = its_mask != IGNORE
        scores = []
        for number in range(19):
            true, guess = (its_mask == number) & known, each[number] * known
            if true.any():
                hit = (guess * true).sum()
                scores.append((2 * hit + 1) / (guess.sum() + true.sum() + 1))
        expected.append(1 - torch.stack(scores).mean())
    torch.testing.assert_close(losses(dice=1), torch.stack(expected))


def test_focal_loss_is_cross_entropy_that_forgets_what_is_known() -> None:
    logits, mask = example()
    known = mask != IGNORE
    right = logits.softmax(1).gather(1, mask.long().where(known, 0)[:, None])[:, 0]
    each = -0.25 * (1 - right) ** 2 * right.log()
    expected = torch.stack([values[where].mean() for values, where in zip(each, known, strict=True)])
    torch.testing.assert_close(losses(focal=1), expected)
    plain = losses(focal=1, focal_alpha=1, focal_gamma=0)
    torch.testing.assert_close(plain, losses(cross_entropy=1))


def test_what_is_not_known_neither_counts_nor_gets_a_gradient() -> None:
    logits, mask = example()
    mask[2] = IGNORE
    logits.requires_grad_()
    found = sample_losses(logits, mask, LossSettings(focal=1))
    assert float(found[2].detach()) == 0
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad.movedim(1, -1)[mask == IGNORE].any()
    assert logits.grad.movedim(1, -1)[mask != IGNORE].any(1).all()


def test_a_certain_and_right_answer_costs_nothing() -> None:
    _, mask = example(0)
    logits = functional.one_hot(mask.long(), 19).movedim(-1, 1) * 60.0
    assert sample_losses(logits, mask, LossSettings(focal=1)).max() < 1e-5


def test_a_mixed_image_is_compared_with_both_masks_by_their_shares() -> None:
    logits, mask = example()
    partner, share = mask.flip(0), torch.tensor([1.0, 0.3, 0.0])
    task = FaceTask(LossSettings())
    batch = {"image": logits, "mask": mask, "mask_partner": partner, "mixup_lam": share}
    mixed, _ = task.loss(torch.nn.Identity(), batch)
    own, other = (sample_losses(logits, each, LossSettings()) for each in (mask, partner))
    torch.testing.assert_close(mixed, (share * own + (1 - share) * other).mean())


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="19 numbers"):
        LossSettings(class_weights=(1.0, 2.0))
    with pytest.raises(ValueError, match="above 0"):
        LossSettings(cross_entropy=0, dice=0)
