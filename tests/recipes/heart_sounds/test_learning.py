"""Networks and losses, against plain computations of the same."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from stoker.recipes.heart_sounds._settings import ClassifierSettings, ContrastSettings
from stoker.recipes.heart_sounds.learning import (
    Classifier,
    ClassifierTask,
    Contrast,
    ContrastTask,
    Encoder,
    Judgement,
    MomentumCopy,
    class_weights,
    evaluate,
    follow_after,
    info_nce,
    part_mask,
    pool_parts,
    pretraining_views,
)
from stoker.recipes.heart_sounds.learning._encoder import DiagonalRecurrence
from stoker.recipes.heart_sounds.learning._parts import device_mask


def encoder() -> Encoder:
    return Encoder(width=4, num_blocks=1, state_size=4)


def test_the_recurrence_is_what_a_loop_over_steps_computes() -> None:
    torch.manual_seed(0)
    layer = DiagonalRecurrence(3, 4).double()
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    step = layer.log_step.exp()
    matrix = torch.complex(-layer.log_decay.exp(), layer.frequency)
    turn = (matrix * step).exp()
    enter = (turn - 1) / matrix
    out = torch.view_as_complex(layer.out)
    expected = x * layer.skip
    for direction, order in ((0, range(20)), (1, reversed(range(20)))):
        state = torch.zeros(2, 3, 4, dtype=torch.complex128)
        for t in order:
            state = turn[direction] * state + enter[direction] * x[:, t, :, None]
            expected[:, t] += 2 * (out[direction] * state).sum(-1).real
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-4, atol=1e-4)


def test_an_encoder_gives_features_and_maps_in_both_precisions() -> None:
    model = encoder()
    features, maps = model(torch.randn(2, 1, 160))
    assert features.shape == (2, 32)
    assert maps.shape == (2, 16, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(torch.randn(2, 1, 160)).features
    assert half.isfinite().all()


def test_parts_are_the_same_on_the_host_and_on_a_device() -> None:
    generator = torch.Generator().manual_seed(0)
    bounds = torch.randint(0, 41, (200, 5), generator=generator).sort(dim=1)[0].int()
    assert torch.equal(device_mask(bounds, 40), part_mask(bounds, 40))
    assert part_mask(bounds[:0], 40).shape == (0, 40)


def test_parts_are_where_the_bounds_say() -> None:
    mask = part_mask(torch.tensor([[0, 3, 5, 6, 9], [2, 4, 4, 6, 8]]), 10)
    assert mask[0].tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 255]
    assert mask[1].tolist() == [255, 255, 0, 0, 2, 2, 3, 3, 255, 255]  # no systole
    maps = torch.arange(20.0).reshape(2, 1, 10)
    pooled, is_there = pool_parts(maps, mask, 1)
    assert pooled[0, :, 0].tolist() == [1, 3.5, 5, 7]
    assert pooled[1, :, 0].tolist() == [12.5, 0, 14.5, 16.5]
    assert is_there.tolist() == [[True] * 4, [True, False, True, True]]


def test_parts_move_along_with_their_views() -> None:
    """A signal that is 1 to 4 in its parts still is, wherever the views have them."""
    views = pretraining_views(path=None, rate=1000, seed=1)
    config = views.pipeline.to_config()
    config["transforms"] = [
        each for each in config["transforms"] if {"signal.TimeShift", "signal.Speed"} & set(each)
    ]
    from stoker.augment import Pipeline
    from stoker.recipes.heart_sounds.learning import TwoViews

    bounds = torch.tensor([[0, 200, 500, 600, 1100]]).repeat(16, 1)
    x = (part_mask(bounds, 1600).float() + 1)[:, None]
    x[x > 4] = 0
    batch = {"x": x, "bounds": bounds, "index": torch.arange(16), "recording_id": torch.arange(16)}
    made = TwoViews(Pipeline.from_config(config))(batch, index=torch.arange(16), epoch=0)
    assert not torch.equal(made["first"], made["second"])
    for name in ("first", "second"):
        signal, parts = made[name][:, 0], made[f"{name}_parts"]
        assert (parts != parts[0]).any()  # they moved
        for part in range(4):
            right = signal[parts == part].round() == part + 1
            assert right.float().mean() > 0.97  # at bounds a signal is interpolated, a mask is not


def test_the_contrastive_loss_is_a_softmax_over_what_is_allowed() -> None:
    torch.manual_seed(0)
    anchors, keys = (nn.functional.normalize(torch.randn(n, 5), dim=1) for n in (3, 6))
    allowed = torch.rand(3, 6) > 0.4
    positive = torch.tensor([4, 0, 2])
    loss, hits = info_nce(anchors, keys, positive, allowed, 0.2)
    for i in range(3):
        scores = [float(anchors[i] @ keys[j]) / 0.2 for j in range(6) if allowed[i, j] or j == positive[i]]
        own = float(anchors[i] @ keys[positive[i]]) / 0.2
        assert loss[i].item() == pytest.approx(np.log(np.exp(scores).sum()) - own, abs=1e-5)
        assert hits[i].item() == (own == max(scores))


def contrast_batch(num: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    bounds = torch.tensor([[0, 20, 60, 80, 150]]).repeat(num, 1)
    parts = part_mask(bounds, 160)
    return {
        "first": torch.randn(num, 1, 160, generator=generator),
        "second": torch.randn(num, 1, 160, generator=generator),
        "first_parts": parts,
        "second_parts": parts,
        "index": torch.arange(num),
        "recording_id": torch.arange(num) // 2,
    }


def test_cycles_of_ones_own_recording_are_no_negatives_unless_asked() -> None:
    losses = {}
    for what in ("ignore", "negative"):
        torch.manual_seed(0)
        settings = ContrastSettings.model_validate({"same_recording": what, "part_weight": 0})
        model = Contrast(encoder(), settings)
        loss, hits = ContrastTask(model, settings).loss(model, contrast_batch(4, 0))
        assert hits.shape == (8,)
        losses[what] = loss.item()
    assert losses["ignore"] < losses["negative"]  # fewer to be told from


def test_a_part_that_a_view_lost_does_not_count() -> None:
    settings = ContrastSettings(cycle_weight=0)
    torch.manual_seed(0)
    model = Contrast(encoder(), settings)
    batch = contrast_batch(4, 0)
    batch["second_parts"] = torch.full_like(batch["second_parts"], 255)
    loss, _ = ContrastTask(model, settings).loss(model, batch)
    assert loss.item() == 0
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_the_queue_is_fed_by_every_batch_and_the_copy_follows_every_update() -> None:
    settings = ContrastSettings(momentum=0.9, queue=12, part_weight=0)
    model = Contrast(encoder(), settings)
    assert model.copy is not None
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.1)
    follow_after(optimizer, model.copy, model.copied())
    task = ContrastTask(model, settings)
    before = [weight.clone() for weight in model.copy.copies.parameters()]
    started = [weight.clone() for weight in model.copied().parameters()]
    for number in range(2):  # two batches in one update
        loss, _ = task.loss(model, contrast_batch(4, number))
        loss.backward()  # type: ignore[no-untyped-call]
        for mine, then in zip(model.copy.copies.parameters(), before, strict=True):
            assert torch.equal(mine, then)
    assert int((model.copy.recordings >= 0).sum()) == 12  # of 16 that came
    assert int(model.copy.place) == 4
    optimizer.step()
    for mine, then, now in zip(
        model.copy.copies.parameters(), started, model.copied().parameters(), strict=True
    ):
        torch.testing.assert_close(mine.data, 0.9 * then + 0.1 * now.data)
    for kept_buffer, buffer in zip(model.copy.copies.buffers(), model.copied().buffers(), strict=True):
        assert torch.equal(kept_buffer, buffer)
    model.eval()
    kept = model.copy.keys.clone()
    task.loss(model, contrast_batch(4, 9))
    assert torch.equal(model.copy.keys, kept)  # evaluation leaves no trace


def test_a_queue_goes_round() -> None:
    copies = MomentumCopy(nn.ModuleDict({"a": nn.Linear(2, 2)}), momentum=0.9, queue=5, num_features=1)
    for first in (0, 3, 6):
        numbers = torch.arange(first, first + 3)
        copies.add(numbers[:, None].float(), numbers)
    assert copies.recordings.tolist() == [5, 6, 7, 8, 4]
    copies.add(torch.arange(20.0)[:, None], torch.arange(20))
    assert sorted(copies.recordings.tolist()) == [15, 16, 17, 18, 19]


def test_a_queue_needs_a_momentum_encoder() -> None:
    with pytest.raises(ValueError, match="set momentum too"):
        ContrastSettings(queue=8)


def test_class_weights_are_inverse_shares_with_mean_one() -> None:
    labels = np.array([0] * 6 + [1] * 2)
    weights = class_weights(labels, 3)
    torch.testing.assert_close(weights, torch.tensor([8 / 12, 2.0, 0.0]))
    assert weights[labels].mean().item() == pytest.approx(1)


@pytest.mark.parametrize("balance", ["none", "weights", "focal"])
def test_the_classifiers_loss_is_the_mean_of_its_samples(balance: str) -> None:
    torch.manual_seed(0)
    settings = ClassifierSettings.model_validate({"balance": balance})
    weights = None if balance == "none" else torch.tensor([0.5, 2.0])
    model = Classifier(encoder(), 2, hidden=8, dropout=0).eval()
    task = ClassifierTask("y", 2, settings, weights)
    batch = {"x": torch.randn(6, 1, 160), "y": torch.tensor([0, 0, 1, 0, 1, 0])}
    whole = task.loss(model, batch)[0]
    parts = [
        task.loss(model, {name: value[i : i + 2] for name, value in batch.items()})[0] for i in (0, 2, 4)
    ]
    torch.testing.assert_close(whole, torch.stack(parts).mean())


def test_a_frozen_encoder_does_not_change() -> None:
    model = Classifier(encoder(), 3, hidden=0, dropout=0, frozen=True).train()
    before = {name: value.clone() for name, value in model.encoder.state_dict().items()}
    model(torch.randn(4, 1, 160)).sum().backward()
    torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in model.encoder.state_dict().items())


def test_recordings_are_judged_by_the_mean_of_their_cycles() -> None:
    rng = np.random.default_rng(0)
    chances = torch.tensor(rng.dirichlet([1, 1], 40))
    recording = [f"r{i // 4}" for i in range(40)]
    labels = torch.tensor([(i // 4) % 2 for i in range(40)])
    judged = Judgement(chances, labels, recording, recording)
    means, own = judged.at("recording")
    torch.testing.assert_close(means, chances.reshape(10, 4, 2).mean(1))
    assert own.tolist() == [0, 1] * 5
    values = evaluate(judged, judged, alarm=1, maximise="youden")
    assert values["recording/auroc"] == pytest.approx(roc_auc_score(own, means[:, 1]))
    assert values["cycle/auroc"] == pytest.approx(roc_auc_score(labels, chances[:, 1]))
    assert values["recording/count"] == 10
    assert not any(name.startswith("patient/") for name in values)
    raised = means[:, 1] >= values["recording/alarm_threshold"]
    assert values["recording/alarm_sensitivity"] == pytest.approx(float(raised[own == 1].float().mean()))
    assert values["recording/alarm_specificity"] == pytest.approx(float((~raised[own == 0]).float().mean()))


def test_no_threshold_is_chosen_where_there_is_no_alarm() -> None:
    chances = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    test = Judgement(chances, torch.tensor([0, 1]), ["a", "b"], ["a", "b"])
    calm = Judgement(chances, torch.tensor([0, 0]), ["a", "b"], ["a", "b"])
    assert "cycle/alarm_threshold" not in evaluate(test, calm, alarm=1, maximise="f1")
    assert "cycle/alarm_threshold" not in evaluate(test, test, alarm=None, maximise="f1")


def sounds(num: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cycles of 0.8 s at 500 points a second, with a murmur or without; their labels and bounds."""
    from stoker.recipes.heart_sounds import synthesize

    rng = np.random.default_rng(seed)
    rows, bounds = [], []
    for i in range(num):
        kind = ("normal", "systolic_murmur")[i % 2]
        made = synthesize(kind, seconds=2.0, rng=rng, rate=1000, beats_per_minute=75, snr_db=20)
        edges = np.rint(made.truth.cycles()[0] * 1000).astype(int)
        rows.append(made.signal[edges[0] : edges[0] + 640])
        bounds.append(np.minimum(edges - edges[0], 640))
    x = torch.from_numpy(np.stack(rows))[:, None]
    return x / x.std(dim=-1, keepdim=True), torch.arange(num) % 2, torch.tensor(np.stack(bounds))


def test_a_classifier_learns_to_hear_a_murmur() -> None:
    torch.manual_seed(0)
    x, y, _ = sounds(32, 0)
    model = Classifier(encoder(), 2, hidden=16, dropout=0)
    task = ClassifierTask("y", 2, ClassifierSettings(), class_weights(y.numpy(), 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(30):
        optimizer.zero_grad()
        task.loss(model, {"x": x, "y": y})[0].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    unheard, label, _ = sounds(32, 1)
    assert (model.eval()(unheard).argmax(1) == label).float().mean() >= 0.9


def test_pretraining_learns_to_find_a_view_again() -> None:
    torch.manual_seed(0)
    x, _, bounds = sounds(24, 0)
    views = pretraining_views(path=None, rate=1000, seed=0)
    settings = ContrastSettings()
    model = Contrast(encoder(), settings)
    task = ContrastTask(model, settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    numbers = torch.arange(24)
    batch = {"x": x, "bounds": bounds, "index": numbers, "recording_id": numbers}
    losses = []
    for epoch in range(20):
        optimizer.zero_grad()
        loss, _ = task.loss(model, views(batch, index=numbers, epoch=epoch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:3])
