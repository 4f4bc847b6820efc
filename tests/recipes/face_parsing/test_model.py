from typing import Any

import numpy as np
import pytest
import torch

from stoker.errors import UsageError
from stoker.recipes.face_parsing import CLASSES, draw_face
from stoker.recipes.face_parsing._loss import sample_losses
from stoker.recipes.face_parsing._model import FaceParser, num_parameters
from stoker.recipes.face_parsing._settings import PROFILES, FaceSettings, LossSettings, ModelSettings
from stoker.recipes.face_parsing._task import FaceTask

TINY: dict[str, Any] = {"widths": (8, 8, 16, 16), "depths": (1, 1, 1, 1), "decoder": 8}


@pytest.mark.parametrize("stride", [2, 4])
@pytest.mark.parametrize("size", [(64, 64), (37, 50), (32, 96)])
def test_every_pixel_has_a_logit_for_each_class(stride: int, size: tuple[int, int]) -> None:
    model = FaceParser(ModelSettings(**TINY, stride=stride))
    assert model(torch.rand(2, 3, *size)).shape == (2, 19, *size)


def test_bytes_and_floats_are_the_same_image() -> None:
    model = FaceParser(ModelSettings(**TINY)).eval()
    image = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(model(image), model(image.float() / 255))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_stays_within_the_limit_of_the_challenge(profile: str) -> None:
    settings = FaceSettings.model_validate(PROFILES[profile])
    count = num_parameters(FaceParser(settings.model))
    assert count <= settings.model.max_parameters == 1_821_085
    if profile == "full":
        assert count > 1_600_000  # it is used


def test_a_larger_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 1821085 parameters"):
        FaceParser(ModelSettings(widths=(64, 128, 256, 256)))
    with pytest.raises(ValueError, match="num_heads"):
        ModelSettings(num_heads=5)
    with pytest.raises(ValueError, match="decoder"):
        ModelSettings(decoder=30)


@pytest.mark.parametrize("stride", [2, 4])
def test_a_pixel_has_its_logits_at_its_own_place(stride: int) -> None:
    """A bright square changes logits around itself: as far to one side as to the other."""
    torch.manual_seed(0)
    model = FaceParser(ModelSettings(**TINY, local=False, stride=stride)).eval()
    for name, weight in model.named_parameters():
        if "attention.output" in name:
            weight.data.zero_()  # it looks everywhere
    model.decoder.register_module("norm", torch.nn.Identity())  # likewise
    image = torch.rand(1, 3, 256, 256)
    square = image.clone()
    square[..., 120:136, 120:136] = 1 - square[..., 120:136, 120:136]
    with torch.no_grad():
        touched = (model(square) - model(image)).abs().sum((0, 1)) > 0
    for axis in (0, 1):
        places = touched.any(axis).nonzero()[:, 0]
        assert int(places[0]) + int(places[-1]) == 255
        assert int(places[0]) > 0


def test_values_are_those_of_each_class_and_their_means() -> None:
    task = FaceTask(LossSettings())
    metric = task.metrics()
    mask = torch.randint(0, 19, (2, 16, 16)).to(torch.uint8)
    mask[0, :4] = 255
    logits = torch.nn.functional.one_hot(mask.long().clamp(max=18), 19).movedim(-1, 1).float()
    metric.update(*task.measured(logits, {"mask": mask}))
    values = metric.compute()
    assert all(float(values[name]) == 1 for name in ("f_score", "miou", "accuracy"))
    assert {f"f_score/{name}" for name in CLASSES} | {f"iou/{name}" for name in CLASSES} <= set(values)


def test_it_can_learn_a_face_by_heart() -> None:
    torch.manual_seed(0)
    model = FaceParser(ModelSettings(**TINY))
    drawn = draw_face(32, np.random.default_rng(0))
    image, mask = torch.from_numpy(drawn[0]).movedim(-1, 0)[None], torch.from_numpy(drawn[1])[None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(50):
        loss = sample_losses(model(image), mask, LossSettings()).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    right = float((model(image).argmax(1) == mask).float().mean())
    assert right > 0.85 > float((mask == mask.flatten().mode().values).float().mean()) + 0.2
