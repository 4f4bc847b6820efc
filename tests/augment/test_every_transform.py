"""What holds for every transform, by registry: a new one is tried here by being registered."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from augment.examples import (
    CASES,
    EXAMPLES,
    batch_of,
    example,
    make,
    pipeline,
    roles_of,
    rows,
)
from stoker.augment import (
    Choice,
    Distribution,
    Integers,
    LogUniform,
    Mixing,
    Normal,
    Pipeline,
    Uniform,
    _parts,
    registered,
)
from stoker.augment.mix import Beta

Case = tuple[str, int]


def cases(which: Callable[[Case], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [case for case in CASES if which(case)], ids=lambda case: f"{case[0]}-{case[1]}"
    )


every = cases(lambda _: True)
every_apart = cases(lambda case: not issubclass(registered()[case[0]], Mixing))  # samples on their own
every_chosen = cases(lambda case: registered()[case[0]].keeps_shape)  # may be left out for a sample
every_neutral = cases(lambda case: example(case).neutral is not None)
every_smooth = cases(lambda case: example(case).gradient)
static_or_rows = pytest.mark.parametrize("static", [False, True], ids=["rows", "static"])


def changed(
    case: Case, batch: dict[str, Tensor], *, static: bool = False, **changes: Any
) -> dict[str, Tensor]:
    after: dict[str, Tensor] = pipeline(case, static=static, **changes)(batch, epoch=2)
    return after


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether every field has the same bits."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first
    )


def prepared(case: Case, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch with fields as they are for samples that are not chosen, such as soft targets for labels."""
    return batch | {name: make(case).prepare(batch[name], role) for name, role in roles_of(case).items()}


def test_every_transform_has_an_example() -> None:
    missing = registered().keys() - {name for name, examples in EXAMPLES.items() if examples}
    assert not missing, f"add examples of {sorted(missing)} to tests/augment/examples.py"
    assert not EXAMPLES.keys() - registered().keys()


@every
def test_it_changes_what_it_should(case: Case) -> None:
    batch = batch_of(roles_of(case))
    after = changed(case, batch)
    moved = [
        name
        for name in roles_of(case)
        if after[name].shape != batch[name].shape or not torch.equal(after[name], batch[name])
    ]
    assert moved == list(roles_of(case))
    assert after["index"] is batch["index"]


@every_apart
@static_or_rows
def test_a_batch_is_the_same_as_its_samples_alone(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case), 9)
    together = changed(case, batch, static=static, p=0.6)
    for i in range(9):
        alone = changed(case, rows(batch, slice(i, i + 1)), static=static, p=0.6)
        assert same(alone, rows(together, slice(i, i + 1)))


@every
def test_the_order_of_a_batch_does_not_matter(case: Case) -> None:
    batch = batch_of(roles_of(case))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    assert same(changed(case, rows(batch, order), p=0.7), rows(changed(case, batch, p=0.7), order))


@every_apart
def test_a_sample_gets_the_same_bits_in_batches_of_every_size(case: Case) -> None:
    batch = batch_of(roles_of(case))
    whole = changed(case, batch, p=0.7)
    for size in (1, 7):
        for start in (0, 21, 63):
            part = slice(start, min(start + size, 64))
            assert same(changed(case, rows(batch, part), p=0.7), rows(whole, part))


@every
def test_threads_do_not_change_the_bits(case: Case) -> None:
    batch = batch_of(roles_of(case))
    one = changed(case, batch, p=0.7)
    torch.set_num_threads(2)
    assert same(changed(case, batch, p=0.7), one)


@every
@pytest.mark.parametrize("p", [0.6, 1.0])
def test_large_samples_are_changed_part_by_part_to_the_same_bits(
    case: Case, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(roles_of(case), 9)
    before = {name: value.clone() for name, value in batch.items()}
    most = 2 if make(case).keeps_shape else 1  # the second one writes to what the first made
    once, twice = (
        Pipeline(*[make(case, p=p) for _ in range(repeated)], roles=roles_of(case), seed=5)
        for repeated in (1, most)
    )
    whole, both = once(batch), twice(batch)
    monkeypatch.setattr(_parts, "_PART", 1)
    assert same(once(batch), whole)
    assert same(twice(batch), both)
    assert same(batch, before)


@every_apart
def test_one_sample_never_alters_another(case: Case) -> None:
    batch = batch_of(roles_of(case), 8)
    before = changed(case, batch)
    other = {name: value.clone() for name, value in batch.items()}
    for name in roles_of(case):
        other[name][3] = other[name][3].flip(0) + 1
    after = changed(case, other)
    kept = [0, 1, 2, 4, 5, 6, 7]
    assert same(rows(before, kept), rows(after, kept))


@every
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9])
def test_selected_rows_and_static_shapes_give_the_same_bits(case: Case, p: float) -> None:
    batch = batch_of(roles_of(case))
    assert same(changed(case, batch, p=p), changed(case, batch, p=p, static=True))


@cases(lambda case: make(case).writes)
@pytest.mark.parametrize("repeated", [1, 2], ids=["new", "in-place"])
def test_what_is_written_has_the_bits_of_what_is_made(case: Case, repeated: int) -> None:
    batch = batch_of(roles_of(case), 9)
    p = 0.6 if make(case).keeps_shape else 1.0
    written, made = (
        Pipeline(*[make(case, p=p) for _ in range(repeated)], roles=roles_of(case), static=static)
        for static in (False, True)
    )
    for epoch in range(5):
        assert same(written(batch, epoch=epoch), made(batch, epoch=epoch))


@every_chosen
@static_or_rows
def test_nothing_changes_at_probability_zero(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case))
    after = changed(case, batch, p=0.0, static=static)
    assert all(after[name] is batch[name] for name in batch if batch[name].is_floating_point())
    before = prepared(case, batch)
    assert all(torch.equal(after[name], before[name]) for name in batch)


@every_chosen
def test_a_sample_that_is_not_chosen_keeps_its_bits(case: Case) -> None:
    batch = batch_of(roles_of(case))
    aug = pipeline(case, p=0.3)
    draws = aug.draw(batch["index"])
    after = aug.replay(batch, draws)
    left = ~draws.chosen[:, 0]
    assert 20 < int(left.sum()) < 64
    before = prepared(case, batch)
    for name in roles_of(case):
        assert torch.equal(after[name][left], before[name][left])


@every_neutral
@static_or_rows
def test_nothing_changes_at_neutral_parameters(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case))
    after = changed(case, batch, static=static, **(example(case).neutral or {}))
    for name in roles_of(case):
        if example(case).tolerance and batch[name].is_floating_point():
            torch.testing.assert_close(after[name], batch[name], atol=example(case).tolerance, rtol=0)
        else:
            assert torch.equal(after[name], batch[name])


@every
@static_or_rows
def test_the_input_is_never_written_to(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case))
    before = {name: value.clone() for name, value in batch.items()}
    repeated = 3 if make(case).keeps_shape else 1
    aug = Pipeline(*[make(case, p=0.5) for _ in range(repeated)], roles=roles_of(case), static=static)
    aug(batch)
    assert same(batch, before)


@every_chosen
def test_it_is_applied_as_often_as_its_probability_says(case: Case) -> None:
    draws = pipeline(case, p=0.3).draw(np.arange(4000))
    assert abs(int(draws.chosen.sum()) - 1200) < 4 * math.sqrt(4000 * 0.3 * 0.7)


@every
def test_parameters_have_the_distribution_that_was_asked_for(case: Case) -> None:
    aug = pipeline(case, p=1.0)
    explained = aug.explain(aug.draw(np.arange(4000)))[0]
    transform = make(case)
    seen = []
    for name, declared in transform.draws.items():
        drawn = explained[name].double().numpy().reshape(4000, -1)
        made, _ = declared if isinstance(declared, tuple) else (declared, 1)
        for column in drawn.T:
            check_distribution(column, made)
            if column.std() > 0:
                seen.append(column)
    if len(seen) > 1:
        correlations = np.corrcoef(np.stack(seen))
        assert np.abs(correlations[~np.eye(len(seen), dtype=bool)]).max() < 5 / math.sqrt(4000)


def check_distribution(values: np.ndarray[tuple[int], np.dtype[np.float64]], made: Distribution) -> None:
    low, high = made.bounds
    if low == high:
        assert (values == np.float32(low)).all()
    elif isinstance(made, Uniform):
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-4
    elif isinstance(made, LogUniform):
        assert stats.kstest(values, stats.loguniform(low, high).cdf).pvalue > 1e-4
    elif isinstance(made, Beta):
        assert stats.kstest(values, stats.beta(made.alpha, made.alpha).cdf).pvalue > 1e-4
    elif isinstance(made, Normal):
        assert stats.kstest(values, stats.norm(made.mean, made.std).cdf).pvalue > 1e-4
    else:
        assert isinstance(made, Integers | Choice)
        options = made.numbers if isinstance(made, Choice) else range(int(low), int(high) + 1)
        counts = [int((values == np.float32(option)).sum()) for option in options]
        assert sum(counts) == len(values)
        assert stats.chisquare(counts).pvalue > 1e-4


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_precisions_keep_their_dtype_and_agree(case: Case, dtype: torch.dtype) -> None:
    batch = batch_of(roles_of(case), 8)
    floats = [name for name in roles_of(case) if batch[name].is_floating_point()]
    given = batch | {name: batch[name].to(dtype) for name in floats}
    reference = changed(case, batch | {name: given[name].float() for name in floats})
    after = changed(case, given)
    for name in floats:
        assert after[name].dtype == dtype
        narrow = dtype != torch.float64
        expected = reference[name].to(dtype)
        torch.testing.assert_close(
            after[name], expected, atol=0 if narrow else 2e-5, rtol=0 if narrow else 1e-5
        )


@every
def test_memory_layout_does_not_matter(case: Case) -> None:
    batch = batch_of(roles_of(case), 8)
    strided = dict(batch)
    for name in roles_of(case):
        value = batch[name]
        strided[name] = value.transpose(0, -1).contiguous().transpose(0, -1) if value.ndim > 1 else value
        padded = torch.stack([strided[name], strided[name]], -1)[..., 0]
        assert value.ndim == 1 or not padded.is_contiguous()
        strided[name] = padded
    assert same(changed(case, strided, p=0.7), changed(case, batch, p=0.7))


@every
@static_or_rows
def test_an_empty_batch_stays_empty(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case), 4)
    full = changed(case, batch, static=static)
    empty = changed(case, rows(batch, slice(0, 0)), static=static)
    for name in full:
        assert empty[name].shape == (0, *full[name].shape[1:])
        assert empty[name].dtype == full[name].dtype


@every_smooth
@static_or_rows
def test_gradients_flow_and_the_result_is_the_same_with_them(case: Case, static: bool) -> None:
    batch = batch_of(roles_of(case), 6)
    floats = [name for name in roles_of(case) if batch[name].is_floating_point()]
    leaves = {name: batch[name].clone().requires_grad_() for name in floats}
    after = changed(case, batch | leaves, static=static, p=0.6)
    plain = changed(case, batch, static=static, p=0.6)
    for name in floats:
        torch.testing.assert_close(after[name], plain[name], atol=1e-6, rtol=1e-6)
    torch.stack([after[name].square().sum() for name in floats]).sum().backward()  # type: ignore[no-untyped-call]
    for leaf in leaves.values():
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        assert (leaf.grad != 0).any()


@every
def test_what_was_drawn_can_be_replayed(case: Case) -> None:
    batch = batch_of(roles_of(case))
    aug = pipeline(case, p=0.6)
    draws = aug.draw(batch["index"], 4)
    assert same(aug.replay(batch, draws), aug(batch, epoch=4))
    assert same(aug.eval().replay(batch, draws), aug.train()(batch, epoch=4))


@every
def test_draws_survive_being_packed_for_a_device(case: Case) -> None:
    from stoker.augment._draws import _copy_together

    draws = pipeline(case, p=0.6).draw(np.arange(9))
    tensors = [draws.noise_keys, draws.partners, draws.values, draws.chosen]
    for before, after in zip(tensors, _copy_together(tensors, torch.device("cpu")), strict=True):
        assert torch.equal(before, after)
        assert before.dtype == after.dtype


@every
def test_the_device_draws_the_same_as_the_host(case: Case) -> None:
    from stoker.augment._keys import device_keys

    index = torch.tensor([0, 1, 5, 2**40, 2**62, 77])
    aug = pipeline(case, p=0.6)
    host = aug.draw(index, 3)
    device = aug._layout.device_draws(device_keys((aug.seed, torch.tensor(3), 0), index))
    for name in ("values", "noise_keys", "chosen", "partners"):
        assert torch.equal(getattr(host, name), getattr(device, name))
    batch = batch_of(roles_of(case), 6)
    assert same(aug.replay(batch, host), aug.replay(batch, device))


@every
def test_a_config_makes_an_equal_pipeline(case: Case) -> None:
    aug = pipeline(case, p=0.6)
    again = Pipeline.from_config(json.loads(json.dumps(aug.to_config())))
    assert again.to_config() == aug.to_config()
    assert repr(again) == repr(aug)
    batch = batch_of(roles_of(case), 6)
    assert same(again(batch), aug(batch))


@every
def test_it_can_be_copied_and_sent_to_another_process(case: Case) -> None:
    aug = pipeline(case, p=0.6)
    batch = batch_of(roles_of(case), 6)
    expected = aug(batch)
    assert same(copy.deepcopy(aug)(batch), expected)
    assert same(pickle.loads(pickle.dumps(aug))(batch), expected)


@every_apart
def test_it_works_alone_as_in_a_pipeline(case: Case) -> None:
    transform = make(case)
    role = transform.roles[0]
    batch = batch_of({"x": role}, 6)
    alone = transform(batch["x"], index=batch["index"], epoch=2, seed=5)
    assert torch.equal(alone, Pipeline(make(case), roles={"x": role}, seed=5)(batch, epoch=2)["x"])
    assert transform.eval()(batch["x"], index=batch["index"]) is batch["x"]
    assert repr(transform).startswith(f"{case[0].partition('.')[2]}(")
