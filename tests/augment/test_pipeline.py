"""The pipeline: fields and roles, modes, views, numbering, and errors that help."""

import pytest
import torch
from torch import nn

import stoker
from stoker.augment import Pipeline, preset
from stoker.augment.mix import MixUp
from stoker.augment.signal import (
    AmplitudeScale,
    ChannelShuffle,
    Crop,
    GaussianNoise,
    Polarity,
    Speed,
    Standardize,
    TimeMask,
    TimeShift,
)
from stoker.errors import UsageError

X = torch.randn(8, 2, 300, generator=torch.Generator().manual_seed(0))
INDEX = torch.arange(8) + 100


def six(**options: object) -> Pipeline:
    return preset("heart_sounds", **options)  # type: ignore[arg-type]


def test_fields_without_a_role_are_the_same_objects() -> None:
    batch = {"x": X, "y": torch.arange(8), "name": ["a"] * 8, "other": X}
    after = six()(batch, index=INDEX)
    assert after is not batch
    assert all(after[name] is batch[name] for name in ("y", "name", "other"))
    assert not torch.equal(after["x"], X)


def test_evaluation_changes_nothing() -> None:
    aug = six().eval()
    batch = {"x": X}
    assert aug(batch, index=INDEX)["x"] is X
    assert [view["x"] is X for view in aug.views(batch, 3)] == [True] * 3


def test_views_are_independent_and_the_first_is_the_plain_call() -> None:
    aug = six()
    first, second = aug.views({"x": X}, 2, index=INDEX, epoch=1)
    assert torch.equal(first["x"], aug({"x": X}, index=INDEX, epoch=1)["x"])
    assert all(not torch.equal(a, b) for a, b in zip(first["x"], second["x"], strict=True))
    again = aug.views({"x": X[2:4]}, 2, index=INDEX[2:4], epoch=1)
    assert torch.equal(again[1]["x"], second["x"][2:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_views_made_together_are_those_made_one_by_one(dtype: torch.dtype) -> None:
    aug = Pipeline(
        Speed(return_length=True, p=0.5), GaussianNoise(p=0.5), roles={"x": "signal", "m": "mask"}, seed=3
    )
    batch = {"x": X.to(dtype), "m": torch.arange(8)[:, None].expand(8, X.shape[-1]), "y": torch.arange(8)}
    views = aug.views(batch, 3, index=INDEX, epoch=2)
    for number, view in enumerate(views):
        alone = aug.replay(batch, aug.draw(INDEX, 2, view=number))
        assert view.keys() == alone.keys() >= {"x", "m", "y", "x_length"}
        assert all(torch.equal(view[name], alone[name]) for name in alone)
        assert view["y"] is batch["y"]
        assert view["x"].dtype is dtype


def test_views_can_be_written_to_and_trained_with_independently() -> None:
    first, second = six().views({"x": X}, 2, index=INDEX)
    weight = torch.ones(1, requires_grad=True)
    loss = (first["x"] * weight).sum()
    second["x"].sub_(1.0)  # what autograd keeps of the first stays as it was
    loss.backward()
    first["x"].mul_(weight)
    assert first["x"].requires_grad


def test_views_of_what_mixes_or_learns_are_made_one_by_one() -> None:
    mixing = Pipeline(MixUp(), roles={"x": "signal"})
    views = mixing.views({"x": X}, 2, index=INDEX)
    assert all(
        torch.equal(view["x"], mixing.replay({"x": X}, mixing.draw(INDEX, view=number))["x"])
        for number, view in enumerate(views)
    )
    leaf = X.clone().requires_grad_()
    six().views({"x": leaf}, 2, index=INDEX)[1]["x"].sum().backward()
    assert leaf.grad is not None


def test_seed_epoch_sample_and_place_all_count() -> None:
    def noisy(seed: int, epoch: int, index: int, place: int) -> torch.Tensor:
        before = [Polarity(p=0.0)] * place
        aug = Pipeline(*before, GaussianNoise(0), roles={"x": "signal"}, seed=seed)
        changed: torch.Tensor = aug({"x": X[:1]}, index=[index], epoch=epoch)["x"]
        return changed

    results = [noisy(0, 0, 0, 0), noisy(1, 0, 0, 0), noisy(0, 1, 0, 0), noisy(0, 0, 1, 0), noisy(0, 0, 0, 1)]
    assert len({result.numpy().tobytes() for result in results}) == 5
    assert torch.equal(results[0], noisy(0, 0, 0, 0))


def test_another_transforms_draws_do_not_move_ours() -> None:
    def shifts(num_masks: int) -> torch.Tensor:
        aug = Pipeline(TimeMask(20, num_masks=num_masks), TimeShift(0.3), roles={"x": "signal"})
        return aug.explain(aug.draw(INDEX))[1]["shift"]

    assert torch.equal(shifts(1), shifts(5))


def test_three_ranks_and_a_resumed_run_see_what_one_process_sees() -> None:
    x, index = torch.randn(60, 1, 333), torch.randperm(1000)[:60]
    whole = six(seed=3)({"x": x}, index=index, epoch=7)["x"]
    ranks = [six(seed=3)({"x": x[r::3]}, index=index[r::3], epoch=7)["x"] for r in range(3)]
    for rank, part in enumerate(ranks):
        assert torch.equal(part, whole[rank::3])
    resumed = six(seed=3)
    assert torch.equal(resumed({"x": x[41:]}, index=index[41:], epoch=7)["x"], whole[41:])


def test_samples_are_numbered_by_the_batch_or_as_they_come() -> None:
    aug = six()
    named = aug({"x": X, "index": INDEX})
    assert torch.equal(named["x"], aug({"x": X}, index=INDEX)["x"])
    first, second = aug({"x": X})["x"], aug({"x": X})["x"]
    assert not torch.equal(first, second)
    assert torch.equal(first, aug({"x": X}, index=range(8))["x"])
    assert torch.equal(second, aug({"x": X}, index=range(8, 16))["x"])


def test_several_fields_of_a_role_get_the_same_parameters() -> None:
    aug = Pipeline(TimeShift(0.3), roles={"x": "signal", "z": "signal"})
    after = aug({"x": X, "z": X.clone()}, index=INDEX)
    assert torch.equal(after["x"], after["z"])


def test_masks_move_with_the_signal_and_see_no_noise() -> None:
    frames = torch.arange(300).repeat(8, 1)
    ramp = frames[:, None].float()
    roles = {"x": "signal", "frames": "mask"}
    aug = Pipeline(TimeShift(0.3), Speed((0.8, 1.2)), Crop(200), roles=roles, seed=1)  # type: ignore[arg-type]
    after = aug({"x": ramp, "frames": frames}, index=INDEX)
    seen = after["frames"] != 255
    seen &= (after["x"][:, 0] - after["x"][:, 0].round()).abs() < 0.49  # halves may go either way
    inside = seen & (after["x"][:, 0] > 2) & (after["x"][:, 0] < 297)
    assert inside.float().mean() > 0.6
    steady = inside & ((after["frames"] - after["x"][:, 0]).abs() < 1)
    assert steady.sum() >= inside.sum() - 8  # interpolated across the seam of the circular shift
    noisy = Pipeline(GaussianNoise(0), Polarity(p=1), roles=roles)({"x": ramp, "frames": frames}, index=INDEX)  # type: ignore[arg-type]
    assert noisy["frames"] is frames


def test_extra_fields_say_what_part_of_the_result_is_signal() -> None:
    aug = Pipeline(Speed((0.5, 2), return_length=True, p=0.6), roles={"x": "signal"})
    x = torch.ones(64, 1, 301)
    draws = aug.draw(range(64))
    for static in (False, True):
        aug.static = static
        after = aug.replay({"x": x}, draws)
        for row, start, length in zip(after["x"][:, 0], after["x_start"], after["x_length"], strict=True):
            where = (row == 1).nonzero().ravel()
            assert (int(where[0]), len(where)) == (int(start), int(length))
    assert (after["x_length"][~draws.chosen[:, 0]] == 301).all()


def test_parameters_can_be_looked_at() -> None:
    aug = Pipeline(TimeShift(0.3, p=0.5), TimeMask(20, num_masks=2), roles={"x": "signal"})
    draws = aug.draw(range(50))
    shift, mask = aug.explain(draws)
    assert shift["shift"].shape == (50,)
    assert mask["length"].shape == (50, 2)
    assert (shift["shift"][~shift["chosen"]] == 0).all()
    assert bool(mask["chosen"].all())


def test_replaying_on_other_fields_does_the_same_to_them() -> None:
    aug = Pipeline(TimeShift(0.3), AmplitudeScale((0.5, 2)), roles={"x": "signal"})
    draws = aug.draw(INDEX)
    assert torch.allclose(aug.replay({"x": 2 * X}, draws)["x"], 2 * aug.replay({"x": X}, draws)["x"])


def test_a_pipeline_is_a_module_without_state() -> None:
    model = nn.Sequential(nn.Linear(2, 2), six())
    assert model.state_dict().keys() == {"0.weight", "0.bias"}
    model.half().apply(lambda _: None)
    assert torch.equal(model[1]({"x": X}, index=INDEX)["x"], six()({"x": X}, index=INDEX)["x"])


def test_it_works_in_inference_mode_and_before_and_after_it() -> None:
    x = torch.randn(4, 1, 313)  # a length that no other test uses: nothing is cached for it
    with torch.inference_mode():
        inside = six()({"x": x}, index=range(4))["x"]
    outside = six()({"x": x.clone().requires_grad_()}, index=range(4))["x"]
    outside.sum().backward()
    assert torch.allclose(inside, outside, atol=1e-6)


def test_the_package_offers_it_when_it_is_asked_for() -> None:
    assert stoker.augment.Pipeline is Pipeline
    assert "augment" in dir(stoker)


def test_presets_are_the_systems_policies() -> None:
    heart = preset("heart_sounds", roles={"sound": "signal"}, seed=4)
    assert [type(transform).__name__ for transform in heart.transforms] == [
        "TimeShift",
        "Speed",
        "AmplitudeScale",
        "GaussianNoise",
        "TimeMask",
        "FrequencyMask",
    ]
    assert [transform.p for transform in heart.transforms] == [0.8, 0.5, 0.8, 0.5, 0.5, 0.3]
    assert heart.roles == {"sound": "signal"}
    emg = torch.arange(16.0).repeat(9, 1)[:, :, None].expand(-1, -1, 5)
    rolled = preset("emg_pose")({"emg": emg}, index=range(9))["emg"]
    by = (rolled[:, 0, 0] - emg[:, 0, 0]).unique().tolist()
    assert by == [0, 1, 15]
    with pytest.raises(UsageError, match="did you mean 'heart_sounds'"):
        preset("heart_sound")


def test_it_shows_itself_as_it_is_written() -> None:
    aug = Pipeline(TimeShift(0.1, p=0.8), ChannelShuffle(), roles={"x": "signal"}, static=True)
    assert repr(aug) == (
        "Pipeline(\n"
        "  TimeShift(shift=Uniform(-0.1, 0.1), p=0.8),\n"
        "  ChannelShuffle(),\n"
        "  roles={'x': 'signal'}, seed=0, static=True,\n"
        ")"
    )


def test_a_transform_needs_a_field_of_its_role() -> None:
    with pytest.raises(UsageError, match="GaussianNoise changes fields with the role signal, got roles="):
        Pipeline(GaussianNoise(), roles={"x": "image"})
    with pytest.raises(UsageError, match=r"a role must be one of signal, .* got 'sound' for the field 'x'"):
        Pipeline(GaussianNoise(), roles={"x": "sound"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="made of transforms, got Linear"):
        Pipeline(nn.Linear(1, 1), roles={"x": "signal"})  # type: ignore[arg-type]


def test_fields_must_fit_their_roles() -> None:
    aug = Pipeline(Standardize(), roles={"x": "signal"})
    with pytest.raises(UsageError, match=r"'signal' must be \[B, C, T\], got 'x' of shape \[8, 300\]"):
        aug({"x": X[:, 0]}, index=INDEX)
    with pytest.raises(UsageError, match="field 'x', so the batch must have it as a tensor, got nothing"):
        aug({"y": X}, index=INDEX)
    with pytest.raises(UsageError, match=r"of shape \[8, 2, 300\] for 7 samples"):
        aug({"x": X}, index=INDEX[:7])
    with pytest.raises(UsageError, match="floating dtype"):
        aug({"x": X.long()}, index=INDEX)
    with pytest.raises(UsageError, match="whole numbers, one a sample, got float32"):
        aug({"x": X}, index=INDEX.float())
    with pytest.raises(UsageError, match="num_views must be at least 1"):
        aug.views({"x": X}, 0)


def test_a_transform_checks_its_own_arguments() -> None:
    for make, message in (
        (lambda: TimeShift(0.1, p=1.5), "p must be a probability"),
        (lambda: TimeShift(0.1, unit="seconds"), "unit must be"),  # type: ignore[arg-type]
        (lambda: Crop(0), "length must be at least 1"),
        (lambda: TimeMask(-1), "length must lie from 0"),
        (lambda: TimeMask(5, num_masks=0), "num_masks must be at least 1"),
        (lambda: Speed(0), "rate must lie from"),
        (lambda: Speed(1, align="end"), "align must be"),  # type: ignore[arg-type]
        (lambda: Standardize(per="batch"), "per must be"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match=message):
            make()
    with pytest.raises(UsageError, match="at least 301 samples, got 300; pad"):
        Crop(301)(X)
