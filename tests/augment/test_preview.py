"""Pictures of augmented samples: what is on them, read back from the figure."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from augment.examples import CASES, batch_of, pipeline, roles_of
from stoker.augment import Mixing, Params, Pipeline, Role, Transform, Uniform, registered
from stoker.augment.image import Affine
from stoker.augment.preview import preview
from stoker.augment.preview._masks import class_colour, coloured, ignored_values
from stoker.augment.preview._panels import spectrogram
from stoker.augment.preview._scales import common_scales, image_scales, value_range
from stoker.augment.preview._words import label_words, number_words, wrapped
from stoker.augment.signal import GaussianNoise, LowPass, TimeMask, TimeShift
from stoker.errors import UsageError


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.texts]


class Average(Mixing):
    """Mixes images and soft targets, for these tests."""

    roles = ("image", "label")

    def __init__(self) -> None:
        super().__init__(draws={"kept": Uniform(0.75, 0.75)})

    def prepare(self, x: Tensor, role: Role) -> Tensor:
        return torch.nn.functional.one_hot(x, 3).float() if role == "label" else x

    def mix(self, x: Tensor, other: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x * params.like("kept", x) + other * (1 - params.like("kept", x))


class Whiten(Transform):
    """Brings volumes to another scale, for these tests."""

    roles = ("volume",)

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return x / 1000


def assert_inside(figure: Any) -> None:
    """No text leaves the picture."""
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width, text.get_text()
        assert box.y0 >= 0
        assert box.y1 <= height, text.get_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_transform_can_be_drawn_inside_the_picture(case: tuple[str, int]) -> None:
    roles = roles_of(case)
    if not {"signal", "image", "volume"} & set(roles.values()):
        return
    kind = registered()[case[0]]
    num_samples = 2 if issubclass(kind, Mixing) else 1  # a panel costs matplotlib a tenth of a second
    figure = preview(pipeline(case), batch_of(roles, num_samples), num_views=1)
    assert_inside(figure)
    assert any(kind.__name__ in text for text in texts(figure))


@pytest.mark.parametrize("name", ["image.Affine", "signal.Speed", "volume.Affine3D"])
def test_many_samples_and_views_are_drawn_inside_the_picture(name: str) -> None:
    assert_inside(preview(pipeline((name, 0)), batch_of(roles_of((name, 0)), 3), num_views=3))


def test_parameters_are_those_of_the_views_of_that_epoch() -> None:
    aug = Pipeline(TimeShift(0.3, p=0.5), TimeMask(50, num_masks=2, p=0.5), roles={"x": "signal"}, seed=4)
    batch = {"x": torch.randn(5, 1, 300)}
    figure = preview(aug, batch, index=[3, 1, 4, 15, 9], epoch=6, num_views=2)
    shown = "\n".join(texts(figure))
    assert "sample 15" in shown
    assert "seed 4, epoch 6" in shown
    for view in range(2):
        draws = aug.draw([3, 1, 4, 15, 9], 6, view=view)
        shift, mask = aug.explain(draws)
        for row in range(5):
            found = f"shift {number_words(shift['shift'][row])}\n" in shown.replace(",", "\n") + "\n"
            assert found == bool(shift["chosen"][row])
            assert (f"length {number_words(mask['length'][row])}," in shown) == bool(mask["chosen"][row])


def test_a_view_is_drawn_as_the_pipeline_makes_it() -> None:
    aug = Pipeline(TimeShift(0.3), GaussianNoise(10), roles={"x": "signal"})
    batch = {"x": torch.randn(1, 1, 300), "index": torch.tensor([8])}
    figure = preview(aug, batch, epoch=2, num_views=2)
    traces = [axes.lines[0].get_ydata() for axes in figure.axes if axes.lines]
    expected = [batch["x"], *(view["x"] for view in aug.views(batch, 2, epoch=2))]
    assert len(traces) == 3
    for trace, x in zip(traces, expected, strict=True):
        np.testing.assert_array_equal(trace, x[0, 0].numpy())


def test_a_batch_is_left_as_it_was_and_a_pipeline_in_its_mode() -> None:
    aug = Pipeline(GaussianNoise(10), roles={"x": "signal"}).eval()
    batch = {"x": torch.randn(2, 3, 300)}
    before = batch["x"].clone()
    preview(aug, batch)
    assert torch.equal(batch["x"], before)
    assert not aug.training


def test_a_long_signal_is_drawn_by_its_extremes() -> None:
    x = torch.zeros(1, 1, 100_003)
    x[0, 0, 77_777], x[0, 0, 5] = 3.0, -2.0
    figure = preview(Pipeline(TimeShift(0), roles={"x": "signal"}), {"x": x}, num_views=1)
    trace = figure.axes[0].lines[0].get_ydata()
    assert len(trace) < 5000
    assert (trace.min(), trace.max()) == (-2, 3)


def test_a_spectrogram_has_a_tone_where_it_belongs() -> None:
    for length in (20, 333, 4000):
        tone = torch.sin(torch.arange(length) * (2 * np.pi * 0.25))[None]
        power = spectrogram(tone)
        assert abs(int(power.mean(1).argmax()) / (len(power) - 1) - 0.5) < 0.1


def test_axes_are_in_hertz_and_seconds_where_the_rate_is_known() -> None:
    x = torch.randn(1, 1, 400)
    plain = preview(Pipeline(TimeShift(0.1), roles={"x": "signal"}), {"x": x}, num_views=1)
    known = preview(Pipeline(LowPass(200, 20), roles={"x": "signal"}), {"x": x}, num_views=1)
    assert [figure.axes[1].get_xlabel() for figure in (plain, known)] == ["samples", "s"]
    assert known.axes[1].get_images()[0].get_extent() == [0, 2, 0, 100]


def test_mixing_names_the_partner_and_the_new_label() -> None:
    aug = Pipeline(Average(), roles={"x": "image", "y": "label"})
    batch = {"x": torch.rand(2, 3, 8, 8), "y": torch.tensor([0, 2])}
    shown = texts(preview(aug, batch, num_views=1, names=["left", "right"]))
    assert "left, y = 0" in shown
    assert "Average  with right, kept 0.75\ny = 0.75 · class 0 + 0.25 · class 2" in shown


def test_a_volume_is_shown_as_its_middle_slices_with_the_mask_over_each() -> None:
    x = torch.linspace(0, 1000, 192).view(1, 1, 4, 6, 8)
    mask = torch.ones(1, 4, 6, 8, dtype=torch.int64)
    aug = Pipeline(Whiten(), roles={"x": "volume", "m": "mask"})
    figure = preview(aug, {"x": x, "m": mask}, num_views=1)
    assert [axes.get_images()[0].get_array().shape for axes in figure.axes[:3]] == [(6, 8), (4, 8), (4, 6)]
    assert all(len(axes.get_images()) == 2 for axes in figure.axes)
    assert "x: float32 [1, 4, 6, 8]\nx: black is 2, white 998" in texts(figure)
    assert "Whiten\nx: black is 0.002, white 0.998" in texts(figure)


def test_classes_have_their_colour_and_what_is_ignored_is_a_chequer() -> None:
    mask = torch.tensor([[0, 1, 2], [255, 255, 1]])
    colours = coloured(mask, {255})
    assert colours[0, 0, 3] == 0
    assert tuple(colours[0, 1, :3]) == pytest.approx(class_colour(1))
    assert tuple(colours[0, 2, :3]) == pytest.approx(class_colour(2))
    assert {round(float(colours[1, column, 0]), 2) for column in (0, 1)} == {0.1, 0.95}
    assert (colours[1, :2, 3] == 1).all()


def test_ignored_is_what_the_transforms_write() -> None:
    assert ignored_values(Pipeline(TimeShift(0.1, ignore=7), roles={"x": "signal"})) == {7, 255}


def test_single_pixels_do_not_stretch_the_scale() -> None:
    x = torch.linspace(0, 1, 1000).repeat(1000)
    x[:100] = 50
    x[200] = torch.nan
    assert value_range(x) == (0, 50)
    assert value_range(x, beyond=0.002) == pytest.approx((0, 1), abs=0.01)
    assert value_range(torch.full((3,), torch.nan)) == (0, 1)


def test_parameters_that_cannot_change_anything_are_left_out() -> None:
    aug = Pipeline(Affine(rotate=20), roles={"x": "image"})
    shown = texts(preview(aug, {"x": torch.rand(1, 3, 9, 9)}, num_views=1))
    assert any(text.startswith("Affine  rotate") and "scale" not in text for text in shown)


def test_one_scale_is_shared_unless_one_would_be_flat() -> None:
    assert common_scales((-1, 1), [(-2, 1), (-1, 2)]) == [(-2, 2)] * 3
    assert common_scales((-1, 1), [(-9, 9), (-8, 9)]) == [(-1, 1), (-9, 9), (-9, 9)]
    assert common_scales((0, 0), [(0, 0)]) == [(0, 0)] * 2
    assert image_scales((0, 1), [(-0.1, 1.1)]) == [(0, 1), (0, 1)]
    assert image_scales((0, 1), [(-2, 2)]) == [(0, 1), (-2, 2)]
    assert image_scales((0, 200), [(10, 255)]) == [(0, 255)] * 2


def test_numbers_and_labels_are_short() -> None:
    assert number_words(torch.tensor(0.123456)) == "0.123"
    assert number_words(torch.tensor([1.0, 2.5, float("inf")])) == "1 2.5 inf"
    assert number_words(torch.arange(9)) == "0 1 2 3 4 5 …"
    assert label_words(torch.tensor(3)) == "3"
    assert label_words(torch.tensor([0.0, 1.0, 1.0])) == "class 1 and class 2"
    assert label_words(torch.zeros(3)) == "no class"
    assert max(map(len, wrapped(["word " * 30], 40))) <= 40


def test_what_cannot_be_drawn_is_refused() -> None:
    aug = Pipeline(TimeShift(0.1), roles={"m": "mask"})
    with pytest.raises(UsageError, match="shows signals, images and volumes"):
        preview(aug, {"m": torch.zeros(2, 8)})
    aug = Pipeline(TimeShift(0.1), roles={"x": "signal"})
    with pytest.raises(UsageError, match=r"must be \[B, C, T\]"):
        preview(aug, {"x": torch.zeros(2, 8)})
    with pytest.raises(UsageError, match="the batch must have it"):
        preview(aug, {"z": torch.zeros(2, 1, 8)})
    with pytest.raises(UsageError, match="num_views must be at least 1"):
        preview(aug, {"x": torch.zeros(2, 1, 8)}, num_views=0)
