"""Metrics in O(1) memory against scikit-learn and numpy on the whole, however the data is cut."""

import copy
import itertools
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch import Tensor

from stoker.errors import UsageError
from stoker.train import (
    classification_metrics,
    regression_metrics,
    segmentation_metrics,
    threshold_at,
)
from stoker.train._metrics_scores import bin_edges
from support.metric_ranks import measure
from support.ranks import run_ranks

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 80)


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[slice]:
    """Any cutting of `size` rows into batches; some of them empty, some of one."""
    inner = draw(st.lists(st.integers(0, size), max_size=8))
    edges = [0, *sorted(inner), size]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def measured(
    metric: Any, prediction: Tensor, target: Tensor, batches: list[slice] | None = None
) -> dict[str, float]:
    for batch in batches or [slice(None)]:
        metric.update(prediction[batch], target[batch])
    return {name: float(value) for name, value in metric.compute().items()}


def same(found: dict[str, float], expected: dict[str, float], tolerance: float = 1e-9) -> None:
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), name


# regression


@quick
@given(st.data(), seeds, sizes, st.sampled_from([0.0, 1e3, -1e6]), st.booleans())
def test_regression_equals_sklearn_however_it_is_cut(
    data: st.DataObject, seed: int, size: int, offset: float, exact: bool
) -> None:
    rng = np.random.default_rng(seed)
    target = rng.standard_normal((size, 3)) * [1, 10, 0.1] + offset
    prediction = target + rng.standard_normal((size, 3))
    batches = data.draw(cuts(size))
    metric = regression_metrics(3, names=["a", "b", "c"], exact=exact)
    found = measured(metric, torch.tensor(prediction), torch.tensor(target), batches)
    same(found, {"mse": sk.mean_squared_error(target, prediction)})
    same(found, {"mae": sk.mean_absolute_error(target, prediction)})
    same(found, {"rmse": math.sqrt(sk.mean_squared_error(target, prediction))})
    same(found, {"r2": sk.r2_score(target, prediction)}, 1e-6)
    for channel, name in enumerate("abc"):
        pair = target[:, channel], prediction[:, channel]
        same(
            found, {f"mae/{name}": sk.mean_absolute_error(*pair), f"mse/{name}": sk.mean_squared_error(*pair)}
        )
        same(found, {f"rmse/{name}": sk.root_mean_squared_error(*pair)})
        same(found, {f"r2/{name}": sk.r2_score(*pair)}, 1e-6)


def test_r2_survives_a_mean_a_hundred_million_times_the_spread() -> None:
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(10_000)
    target, prediction = spread + 1e8, spread + 1e8 + 0.5 * rng.standard_normal(10_000)
    batches = [slice(start, start + 64) for start in range(0, 10_000, 64)]
    found = measured(regression_metrics(), torch.tensor(prediction), torch.tensor(target), batches)
    assert found["r2"] == pytest.approx(sk.r2_score(target, prediction), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mean_of_a_million_low_precision_values_is_right(dtype: torch.dtype) -> None:
    target = torch.full((1_000_000,), 0.1, dtype=dtype)
    metric = regression_metrics()
    for batch in torch.split(target, 1000):
        metric.update(torch.zeros_like(batch), batch)
    value = float(target[0])
    same({k: float(v) for k, v in metric.compute().items()}, {"mae": value, "mse": value**2}, 1e-12)


def test_targets_that_never_vary_have_the_r2_that_sklearn_gives_them() -> None:
    target = torch.full((100,), 0.1, dtype=torch.float64)
    batches = [slice(0, 33), slice(33, 100)]
    assert measured(regression_metrics(), target, target, batches)["r2"] == 1.0
    assert measured(regression_metrics(), target + 1, target, batches)["r2"] == 0.0
    assert math.isnan(measured(regression_metrics(), target[:1], target[:1])["r2"])


def test_channels_are_the_second_axis_of_signals() -> None:
    target = torch.arange(24.0).reshape(2, 3, 4)
    found = measured(regression_metrics(3), target + torch.tensor([1.0, 2.0, 3.0])[:, None], target)
    assert [found[f"mae/{channel}"] for channel in range(3)] == [1, 2, 3]
    assert found["mae"] == 2


def test_shapes_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(UsageError, match=r"one shape, got \[4, 1\] and \[4\]"):
        regression_metrics().update(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(UsageError, match=r"must be \[B, 3, ...\] for 3 channels, got \[4, 2\]"):
        regression_metrics(3).update(torch.zeros(4, 2), torch.zeros(4, 2))


# classification


def answers(truth: Any, guess: Any) -> dict[str, float]:
    """What scikit-learn says of classes, without those that are nowhere."""
    matrix = sk.multilabel_confusion_matrix(truth, guess, labels=np.unique(np.r_[truth, guess]))
    tn, fp = matrix[:, 0, 0], matrix[:, 0, 1]
    with np.errstate(invalid="ignore"):
        specificity = np.nanmean(tn / (tn + fp)) if np.any(tn + fp) else math.nan
    there = np.unique(truth)
    return {
        "accuracy": sk.accuracy_score(truth, guess),
        "macro_f1": sk.f1_score(truth, guess, average="macro"),
        "sensitivity": sk.recall_score(truth, guess, labels=there, average="macro", zero_division=0),
        "specificity": specificity,
    }


def areas(truth: Any, score: Any) -> tuple[float, float]:
    if not truth.any():
        return math.nan, math.nan
    return (
        math.nan if truth.all() else sk.roc_auc_score(truth, score),
        sk.average_precision_score(truth, score),
    )


@quick
@given(st.data(), seeds, sizes, st.booleans(), st.booleans())
def test_multiclass_equals_sklearn_however_it_is_cut(
    data: st.DataObject, seed: int, size: int, exact: bool, logits: bool
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, size)
    # whole numbers: ties are real ones
    scores = torch.tensor(rng.integers(-3, 4, (size, 4)) + 2.0 * np.eye(4)[truth]) + torch.arange(4) / 16
    probability = scores.softmax(1)
    metric = classification_metrics(4, logits=logits, exact=exact, per_class=True)
    # fully specified classes 0-3 appear or not, as drawn; specificity is over all classes there could be
    found = measured(metric, scores if logits else probability, torch.tensor(truth), data.draw(cuts(size)))
    expected = answers(truth, scores.argmax(1).numpy())
    del expected["specificity"]
    same(found, expected)
    ranking = probability.numpy() if exact else np.digitize(probability.numpy(), bin_edges().numpy())
    for label in range(4):
        roc, precision = areas(truth == label, ranking[:, label])
        same(found, {f"auroc/{label}": roc, f"auprc/{label}": precision}, 1e-6)
        negatives = truth != label
        if negatives.any():
            right = np.mean(scores.argmax(1).numpy()[negatives] != label)
            same(found, {f"specificity/{label}": float(right)})


@quick
@given(st.data(), seeds, sizes, st.booleans(), st.sampled_from(["flat", "column", "two"]))
def test_binary_equals_sklearn_however_it_is_cut(
    data: st.DataObject, seed: int, size: int, exact: bool, form: str
) -> None:
    rng = np.random.default_rng(seed)
    truth = np.r_[0, 1, rng.integers(0, 2, size)]
    score = rng.integers(-5, 5, size + 2) + 0.25 + truth
    prediction = torch.tensor(score)
    if form == "column":
        prediction = prediction[:, None]
    elif form == "two":
        prediction = torch.stack([torch.zeros(size + 2), prediction], dim=1)
    metric = classification_metrics(2, exact=exact, threshold=0.6)
    found = measured(metric, prediction, torch.tensor(truth), data.draw(cuts(size + 2)))
    guess = (1 / (1 + np.exp(-score)) >= 0.6).astype(int)
    expected = {
        "accuracy": sk.accuracy_score(truth, guess),
        "f1": sk.f1_score(truth, guess, zero_division=0),
        "macro_f1": sk.f1_score(truth, guess, average="macro"),
        "sensitivity": sk.recall_score(truth, guess),
        "specificity": sk.recall_score(truth, guess, pos_label=0),
        "auroc": sk.roc_auc_score(truth, score),
        "auprc": sk.average_precision_score(truth, score),
    }
    same(found, expected, 1e-6 if exact else 1e-9)  # each score has its own bin: binned is exact here
    assert set(found) == set(expected)


@quick
@given(st.data(), seeds, sizes, st.booleans())
def test_multilabel_equals_sklearn_however_it_is_cut(
    data: st.DataObject, seed: int, size: int, exact: bool
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, (size, 3))
    score = rng.integers(-5, 5, (size, 3)) + 0.25 + truth
    metric = classification_metrics(3, kind="multilabel", names=["a", "b", "c"], per_class=True, exact=exact)
    found = measured(metric, torch.tensor(score), torch.tensor(truth), data.draw(cuts(size)))
    same(found, {"accuracy": float(np.mean((score >= 0) == truth))})
    for label, name in enumerate("abc"):
        yes, guess = truth[:, label], (score[:, label] >= 0).astype(int)
        roc, precision = areas(yes.astype(bool), score[:, label])
        same(found, {f"auroc/{name}": roc, f"auprc/{name}": precision}, 1e-6)
        f1 = sk.f1_score(yes, guess, zero_division=0) if (yes | guess).any() else math.nan
        same(found, {f"f1/{name}": f1})
        same(found, {f"sensitivity/{name}": sk.recall_score(yes, guess) if yes.any() else math.nan})


@pytest.mark.parametrize(
    ("scale", "shift"), [(1.0, 0.0), (0.01, 0.0), (20.0, 0.0), (1.0, 12.0), (1000.0, 0.0)]
)
def test_binned_areas_are_near_the_exact_ones_wherever_the_scores_lie(scale: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(1)
    truth = torch.randint(0, 2, (20_000,), generator=generator)
    score = (torch.randn(20_000, generator=generator).double() + truth) * scale + shift
    found = measured(classification_metrics(2), score, truth)
    roc, precision = areas(truth.numpy(), score.numpy())
    assert found["auroc"] == pytest.approx(roc, abs=5e-4 if scale > 0.1 else 2e-2)
    assert found["auprc"] == pytest.approx(precision, abs=1e-2 if scale > 0.1 else 5e-2)


def test_a_batch_of_logits_between_0_and_1_is_still_one_of_logits() -> None:
    metric = classification_metrics(2)
    metric.update(
        torch.tensor([0.3, 0.4]), torch.tensor([1, 1])
    )  # torchmetrics takes these for probabilities
    metric.update(torch.tensor([-3.0, -4.0]), torch.tensor([0, 0]))
    assert float(metric.compute()["accuracy"]) == 1.0


def test_ignored_targets_leave_no_trace() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 3, generator=generator)
    truth = torch.randint(0, 3, (50,), generator=generator)
    marked = torch.where(torch.arange(50) % 3 == 0, -100, truth)
    scores[::3] = 99.0
    for exact in (False, True):
        found = measured(classification_metrics(3, ignore=-100, exact=exact), scores, marked)
        kept = marked != -100
        same(found, measured(classification_metrics(3, exact=exact), scores[kept], truth[kept]))


@pytest.mark.parametrize("exact", [False, True])
def test_what_cannot_be_measured_is_said_or_nan(exact: bool) -> None:
    metric = classification_metrics(3, exact=exact)
    metric.update(torch.zeros(2, 3), torch.tensor([0, 7]))
    with pytest.raises(UsageError, match=r"classes, 0 to 2, got 1 others"):
        metric.compute()
    metric = classification_metrics(3, logits=False, exact=exact)
    metric.update(torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([1]))
    with pytest.raises(UsageError, match=r"probabilities, 0 to 1, got 1 others"):
        metric.compute()
    metric = classification_metrics(3, exact=exact)
    metric.update(torch.tensor([[0.0, math.nan, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([1, 0]))
    assert all(value.isnan() for value in metric.compute().values())
    with pytest.raises(UsageError, match=r"must be \[B, 3, ...\] for a target \[B, ...\], got \[2, 4\]"):
        metric.update(torch.zeros(2, 4), torch.zeros(2))
    nothing = classification_metrics(3, exact=exact).compute()
    assert all(value.isnan() for value in nothing.values())


# thresholds


@quick
@given(seeds, sizes, st.floats(0.05, 1.0))
def test_a_threshold_keeps_what_was_asked_and_gives_up_no_more_than_needed(
    seed: int, size: int, wish: float
) -> None:
    rng = np.random.default_rng(seed)
    truth = np.r_[0, 1, rng.integers(0, 2, size)]
    score = rng.integers(-5, 5, size + 2) + truth
    arrays = torch.tensor(score), torch.tensor(truth)
    false_alarms, hits, thresholds = sk.roc_curve(truth, score, drop_intermediate=False)
    cut = threshold_at(*arrays, sensitivity=wish)
    assert np.mean(score[truth == 1] >= cut) >= wish - 1e-12
    assert cut == thresholds[np.flatnonzero(hits >= wish - 1e-12)[0]]
    cut = threshold_at(*arrays, specificity=wish)
    assert np.mean(score[truth == 0] < cut) >= wish - 1e-12
    cut = threshold_at(*arrays, maximise="youden")
    assert np.mean(score[truth == 1] >= cut) - np.mean(score[truth == 0] >= cut) == pytest.approx(
        np.max(hits - false_alarms)
    )
    best = max(sk.f1_score(truth, score >= each, zero_division=0) for each in thresholds)
    assert sk.f1_score(truth, score >= threshold_at(*arrays, maximise="f1")) == pytest.approx(best)


def test_a_threshold_chosen_on_the_binned_scores_does_what_was_asked() -> None:
    generator = torch.Generator().manual_seed(2)
    truth = torch.randint(0, 2, (5000,), generator=generator)
    score = torch.randn(5000, generator=generator) + truth
    metric = classification_metrics(2)
    for batch in zip(torch.split(score, 64), torch.split(truth, 64), strict=True):
        metric.update(*batch)
    (cut,) = metric.threshold_at(sensitivity=0.9)
    assert cut == pytest.approx(threshold_at(score.sigmoid(), truth, sensitivity=0.9), abs=3e-3)
    whole = classification_metrics(2, exact=True)
    whole.update(score, truth)
    assert whole.threshold_at(sensitivity=0.9) == [
        threshold_at(score.double().sigmoid(), truth, sensitivity=0.9)
    ]
    again = measured(classification_metrics(2, threshold=cut), score, truth)
    assert again["sensitivity"] >= 0.9
    with pytest.raises(UsageError, match="not multiclass"):
        classification_metrics(3).threshold_at(sensitivity=0.9)


def test_a_threshold_needs_one_wish_and_both_kinds() -> None:
    scores, truth = torch.tensor([0.1, 0.9]), torch.tensor([0, 1])
    with pytest.raises(UsageError, match="exactly one of sensitivity, specificity, maximise"):
        threshold_at(scores, truth)
    with pytest.raises(UsageError, match=r"sensitivity must be 0 to 1, got 90"):
        threshold_at(scores, truth, sensitivity=90)
    with pytest.raises(UsageError, match="both positives and negatives"):
        threshold_at(scores, torch.ones(2), maximise="f1")
    assert threshold_at(torch.tensor([0.1, 0.9]), torch.tensor([1, 0]), specificity=1.0) == math.inf


# segmentation


@quick
@given(st.data(), seeds, st.integers(1, 6), st.booleans())
def test_segmentation_equals_sklearn_however_it_is_cut(
    data: st.DataObject, seed: int, size: int, exact: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.standard_normal((size, 5, 4, 3)))
    truth = rng.choice([0, 1, 2, 4, 255], (size, 4, 3))
    metric = segmentation_metrics(5, exact=exact)
    found = measured(metric, scores, torch.tensor(truth, dtype=torch.uint8), data.draw(cuts(size)))
    kept = truth != 255
    pair = truth[kept], scores.argmax(1).numpy()[kept]
    if not kept.any():
        assert all(math.isnan(value) for value in found.values())
        return
    same(found, {"accuracy": sk.accuracy_score(*pair), "f_score": sk.f1_score(*pair, average="macro")})
    same(found, {"miou": sk.jaccard_score(*pair, average="macro")})
    there = np.unique(np.concatenate(pair))
    f_scores, ious = sk.f1_score(*pair, average=None), sk.jaccard_score(*pair, average=None)
    for label, f_score, iou in zip(there, f_scores, ious, strict=True):
        same(found, {f"f_score/{label}": f_score, f"iou/{label}": iou})


def test_masks_may_be_predicted_as_classes() -> None:
    truth = torch.tensor([[0, 1], [2, 255]])
    assert measured(segmentation_metrics(3, names=["skin", "nose", "hair"]), truth % 255, truth) == {
        "accuracy": 1,
        "f_score": 1,
        "miou": 1,
        **{f"{kind}/{name}": 1 for kind in ("f_score", "iou") for name in ("skin", "nose", "hair")},
    }
    metric = segmentation_metrics(3)
    metric.update(torch.tensor([5]), torch.tensor([0]))
    with pytest.raises(UsageError, match="predicted classes must be 0 to 2, got 1 others"):
        metric.compute()


@pytest.mark.parametrize("size", [(3, 300, 300), (2, 700, 700), (40, 90, 90), (1, 600, 600)])
def test_large_masks_are_counted_in_pieces_with_the_same_result(size: tuple[int, int, int]) -> None:
    truth = torch.randint(0, 4, size, generator=torch.Generator().manual_seed(0))
    guess = torch.where(truth == 2, 1, truth.roll(1, -1))
    truth[0, :5] = 255
    whole = measured(segmentation_metrics(4, exact=True), guess, truth)
    assert measured(segmentation_metrics(4), guess, truth) == pytest.approx(whole, abs=1e-12)
    with pytest.raises(UsageError, match="a prediction must be"):
        segmentation_metrics(4).update(guess[:-1], truth)


# state

Maker = Callable[[bool], Any]
MAKERS: dict[str, tuple[Maker, tuple[int, ...]]] = {
    "regression": (lambda exact: regression_metrics(3, exact=exact), (3,)),
    "multiclass": (lambda exact: classification_metrics(3, exact=exact), ()),
    "segmentation": (lambda exact: segmentation_metrics(3, exact=exact), ()),
}


def example(shape: tuple[int, ...], count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    prediction = torch.randn(count, 3, generator=generator)
    if shape:
        return prediction, torch.randn(count, *shape, generator=generator)
    return prediction, torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_state_goes_through_a_safe_checkpoint_in_the_middle(name: str, exact: bool, tmp_path: Path) -> None:
    make, shape = MAKERS[name]
    one, two, whole = make(exact), make(exact), make(exact)
    prediction, target = example(shape, 20)
    one.update(prediction[:7], target[:7])
    one.compute()
    torch.save(one.state_dict(), tmp_path / "state.pt")
    two.compute()
    two.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    resumed = measured(two, prediction[7:], target[7:])
    assert resumed == pytest.approx(measured(whole, prediction, target), nan_ok=True)
    whole.reset()
    assert all(value.isnan() for value in whole.compute().values())
    clone = copy.deepcopy(two).to("cpu")
    assert measured(clone, prediction[:0], target[:0]) == resumed


@pytest.mark.parametrize("name", MAKERS)
def test_metrics_may_change_between_inference_mode_and_training(name: str) -> None:
    make, shape = MAKERS[name]
    metric, (prediction, target) = make(False), example(shape, 8)
    with torch.inference_mode():
        metric.reset()
        metric.update(prediction, target)
    first = metric.compute()
    metric.update(prediction.clone().requires_grad_(), target)
    assert {k: float(v) for k, v in metric.compute().items() if k != "r2"}.keys() <= first.keys()


def state_bytes(metric: Any) -> int:
    return sum(value.nbytes for value in metric.state_dict().values())


def test_memory_is_flat_over_a_million_samples() -> None:
    made = [regression_metrics(3), classification_metrics(3), segmentation_metrics(3)]
    batches = [example((3,), 10_000), example((), 10_000), example((), 10_000)]
    before = [state_bytes(metric) for metric in made]
    for metric, batch in zip(made, batches, strict=True):
        metric.update(*batch)
    tracemalloc.start()
    sizes = []
    for step in range(100):
        for metric, batch in zip(made, batches, strict=True):
            metric.update(*batch)
        if step in {9, 99}:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] - sizes[0] < 20_000
    assert [state_bytes(metric) for metric in made] == before
    assert max(before) < 250_000


def test_ranks_with_uneven_shares_or_none_compute_what_one_process_does() -> None:
    results, _ = run_ranks(2, measure)
    assert len(results) == 8
    for found in results.values():
        for way in ("shared", "lonely", "again"):
            assert found[way] == pytest.approx(found["whole"], rel=1e-9, nan_ok=True), way
    assert 0 < results["binary exact=False"]["threshold"]["all"] < 1


def test_arguments_that_cannot_be_are_named() -> None:
    with pytest.raises(UsageError, match="num_classes must be 2 for binary classification, got 3"):
        classification_metrics(3, kind="binary")
    with pytest.raises(UsageError, match="num_classes must be at least 2 for multiclass"):
        classification_metrics(1)
    with pytest.raises(UsageError, match="names must be 3, one for each of num_classes, got 1"):
        classification_metrics(3, names=["a"])
    with pytest.raises(UsageError, match="one for each of 3 labels, got 2"):
        classification_metrics(3, kind="multilabel", threshold=[0.5, 0.5])
    with pytest.raises(UsageError, match="names must be there and differ"):
        regression_metrics(names=["a", "a"])
    with pytest.raises(UsageError, match="num_classes must be at least 2, got 1"):
        segmentation_metrics(1)


def test_importing_the_trainer_does_not_import_torchmetrics() -> None:
    code = "import sys, stoker.train; print('torchmetrics' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
