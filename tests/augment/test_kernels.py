"""Loops compiled by numba give the bits of the operators that they stand for."""

import pickle
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from augment.examples import CASES, batch_of, pipeline, roles_of
from stoker.augment import Integers, Params, Pipeline, Role, Sampling, Transform, _operations, _sampling
from stoker.augment._blur import blur_radius, gaussian_blur
from stoker.augment._geometry import sample
from stoker.augment._operations import Operation
from stoker.augment.signal import AmplitudeScale, FrequencyMask, GaussianNoise, Speed, TimeMask, TimeShift
from stoker.augment.volume import Affine3D

Case = tuple[str, int]


def bits(x: Tensor) -> Tensor:
    return x.view({4: torch.int32, 8: torch.int64}[x.dtype.itemsize]) if x.is_floating_point() else x


def without(run: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What it gives where numba is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_operations, "are_compiled", lambda: False)
        return run()


def test_they_are_installed_where_everything_is_tested() -> None:
    assert _operations.are_compiled()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_transform_gives_the_same_bits_without_them(case: Case) -> None:
    batch = batch_of(roles_of(case), 16)

    def run() -> dict[str, Tensor]:
        out: dict[str, Tensor] = pipeline(case)(batch, epoch=2)
        return out

    looped, plain = run(), without(run)
    assert looped.keys() == plain.keys()
    for name, x in looped.items():
        assert torch.equal(x, plain[name]), name


TRANSFORMS: list[Callable[[], Transform]] = [
    lambda: GaussianNoise((0, 20), p=0.6),
    lambda: Speed((0.5, 2.0), p=0.6),
    lambda: Speed((0.02, 60.0), align="start", p=0.6),
    lambda: TimeShift(1.5, p=0.6),
    lambda: TimeShift(0.9, circular=False, p=0.6),
    lambda: TimeMask(0.5, unit="fraction", num_masks=2, p=0.6),
    lambda: FrequencyMask(0.5, num_masks=2, p=0.6),
]


@given(
    which=st.lists(st.sampled_from(TRANSFORMS), min_size=1, max_size=3),
    num_samples=st.integers(1, 5),
    num_channels=st.integers(1, 3),
    length=st.integers(2, 70),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**32),
)
def test_any_shape_and_order_gives_the_same_bits(
    which: list[Callable[[], Transform]],
    num_samples: int,
    num_channels: int,
    length: int,
    dtype: torch.dtype,
    seed: int,
) -> None:
    def run() -> dict[str, Tensor]:
        moves_masks = any({"signal", "mask"} <= set(make().roles) for make in which)
        roles: dict[str, Role] = {"x": "signal", **({"frames": "mask"} if moves_masks else {})}
        out: dict[str, Tensor] = Pipeline(*(make() for make in which), roles=roles, seed=seed)(batch)
        return out

    generator = torch.Generator().manual_seed(seed)
    batch = {
        "x": torch.randn(num_samples, num_channels, length, dtype=dtype, generator=generator),
        "frames": torch.randint(0, 5, (num_samples, length), generator=generator, dtype=torch.uint8),
    }
    before = {name: x.clone() for name, x in batch.items()}
    looped, plain = run(), without(run)
    for name, x in batch.items():
        assert torch.equal(looped[name], plain[name]), name
        assert torch.equal(x, before[name]), name  # what came is not written to


@given(
    shape=st.lists(st.integers(1, 9), min_size=4, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    widest=st.floats(0.0, 3.0),
    transposed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_blur_of_any_shape_has_the_same_bits(
    shape: list[int], dtype: torch.dtype, widest: float, transposed: bool, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=dtype, generator=random)
    x = x.transpose(-1, -2) if transposed else x
    sigma = torch.rand(shape[0], generator=random) * widest
    axes = x.ndim - 2

    def run() -> dict[str, Tensor]:
        return {"x": gaussian_blur(x, [sigma] * axes, [blur_radius(widest)] * axes)}

    assert torch.equal(bits(run()["x"]), bits(without(run)["x"]))


@given(
    size=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    seen=st.integers(1, 40),
    num_samples=st.integers(1, 3),
    zoom=st.floats(0.05, 5.0),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    kind=st.sampled_from([torch.uint8, torch.int16, torch.int64, torch.float64]),
    seed=st.integers(0, 2**32),
)
def test_a_volume_that_is_sampled_anywhere_has_the_same_bits(
    size: list[int],
    seen: int,
    num_samples: int,
    zoom: float,
    padding: Literal["zeros", "border", "reflection"],
    kind: torch.dtype,
    seed: int,
) -> None:
    random = torch.Generator().manual_seed(seed)
    dims, out = len(size), [seen, *size[1:]]
    x = torch.randn(num_samples, 2, *size, generator=random)
    x = x.transpose(-1, -2).contiguous().transpose(-1, -2) if seed % 2 else x
    mask = torch.randint(0, 120, (num_samples, *size), generator=random).to(kind)
    matrix = zoom * torch.randn(num_samples, dims, dims + 1, generator=random)
    matrix[0] *= seed % 3  # may look at one place only

    def run() -> dict[str, Tensor]:
        look = Sampling("bilinear", padding, ignore=99)
        fields: dict[str, tuple[Tensor, Role]] = {"x": (x, "volume"), "mask": (mask, "mask")}
        return {name: sample(field, matrix, tuple(out), role, look) for name, (field, role) in fields.items()}

    looped, plain = run(), without(run)
    assert torch.equal(bits(looped["x"]), bits(plain["x"]))
    assert torch.equal(looped["mask"], plain["mask"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere torch may fuse multiply-adds in it")
def test_sampling_by_a_loop_was_tried_and_agrees() -> None:
    assert _sampling._agrees_with_torch()


def test_places_that_are_no_numbers_are_nowhere() -> None:
    matrix = torch.eye(3, 4).expand(3, -1, -1).clone()
    matrix[0], matrix[1] = 1e38, torch.inf
    look = Sampling("bilinear", "zeros", ignore=9)
    assert (sample(torch.ones(3, 4, 4, 4).long(), matrix, (5, 5, 5), "mask", look)[:2] == 9).all()
    assert not sample(torch.ones(3, 1, 4, 4, 4), matrix, (5, 5, 5), "volume", look)[:2].any()


@pytest.mark.parametrize("role", ["mask", "volume"])
def test_places_that_are_no_numbers_are_at_the_same_edge_as_the_operators(
    role: Literal["mask", "volume"],
) -> None:
    matrix = torch.eye(3, 4).expand(3, -1, -1).clone()
    matrix[0, 0, 3], matrix[1, 1, 1], matrix[2, 2, 3] = torch.nan, torch.inf, -torch.inf
    x = torch.arange(81.0).view(3, 1, 3, 3, 3).to(torch.int64 if role == "mask" else torch.float32)

    def run() -> dict[str, Tensor]:
        return {"x": sample(x, matrix, (3, 3, 3), role, Sampling("bilinear", "border"))}

    assert torch.equal(bits(run()["x"]), bits(without(run)["x"]))


@pytest.mark.parametrize("shape", [(1, 3, 4), (4, 2, 3)])
def test_matrices_for_other_samples_or_axes_are_refused_by_the_operator(shape: tuple[int, ...]) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        sample(torch.ones(4, 1, 2, 2, 2), torch.ones(shape), (2, 2, 2), "volume", Sampling())


def test_matrices_of_double_precision_are_for_the_operator() -> None:
    matrix = torch.rand(2, 3, 4, dtype=torch.float64)

    def run() -> dict[str, Tensor]:
        return {"x": sample(torch.ones(2, 1, 5, 5, 5), matrix, (5, 5, 5), "volume", Sampling())}

    assert torch.equal(run()["x"], without(run)["x"])


def test_volumes_stay_on_the_host_whatever_the_default_device() -> None:
    augment = Pipeline(Affine3D(rotate=10), roles={"x": "volume"})
    x = torch.randn(2, 1, 8, 8, 8)
    expected = augment({"x": x}, index=[0, 1])["x"]
    _sampling._agrees_with_torch.cache_clear()
    with torch.device("meta"):
        found = augment({"x": x}, index=[0, 1])["x"]
    assert torch.equal(found, expected)


def test_an_error_in_a_thread_of_the_loop_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_elsewhere(*_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no room in a thread")

    assert _sampling._agrees_with_torch()
    monkeypatch.setattr(_sampling, "call_kernel", fail_elsewhere)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(MemoryError, match="in a thread"):
        sample(torch.ones(2, 1, 4, 4, 4), torch.eye(3, 4).expand(2, -1, -1), (4, 4, 4), "volume", Sampling())


@pytest.mark.parametrize("transform", [GaussianNoise(p=0.5), Speed(p=0.5), TimeShift(p=0.5)], ids=repr)
def test_samples_that_were_not_chosen_keep_every_bit_though_they_are_no_numbers(transform: Transform) -> None:
    x = torch.full((64, 2, 9), -0.0)
    x[:, 0, 3] = torch.nan
    x[:, 1, 4] = torch.inf
    pipeline = Pipeline(transform, roles={"x": "signal"})
    chosen = pipeline.draw(torch.arange(64)).chosen[:, 0]
    after = pipeline({"x": x}, index=torch.arange(64))["x"]
    assert 0 < chosen.sum() < 64
    assert torch.equal(bits(after[~chosen]), bits(x[~chosen]))


_SCRIPT = """
import torch
from stoker.augment.signal import FrequencyMask
print(FrequencyMask(0.5)(torch.arange(6400.0).view(64, 1, 100)).square().sum().item())
"""  # whose loops are small, and compiled in a moment


def test_a_place_that_cannot_keep_what_was_compiled_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sums = set()
    for folder, limit in (
        (tmp_path / "kept", ""),
        (tmp_path / "file" / "in", ""),
        (tmp_path, "ulimit -f 0;"),
    ):
        command = f"{limit} NUMBA_CACHE_DIR={folder} exec {sys.executable} -W error -c '{_SCRIPT}'"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sums.add(done.stdout)
    assert len(sums) == 1
    assert list((tmp_path / "kept").rglob("*.nbc"))


def test_numba_s_own_switch_turns_them_off() -> None:
    command = "from stoker.augment import _operations; print(_operations.are_compiled())"
    found = subprocess.run(
        ["env", "NUMBA_DISABLE_JIT=1", sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "False\n"


class Silenced(GaussianNoise):
    """A subclass with a change of its own."""

    def change(self, x: Tensor, params: Params, role: Role) -> Tensor:  # noqa: ARG002
        return torch.zeros_like(x)


class Remembering(GaussianNoise):
    """A subclass that keeps the field as it was."""

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        return {"clean": fields["x"]}


def test_a_subclass_that_changes_otherwise_is_asked_to() -> None:
    assert not Silenced()(torch.ones(4, 1, 8)).any()


def test_what_extras_keep_of_a_field_is_not_written_over() -> None:
    x = torch.randn(4, 1, 50)
    both = Pipeline(TimeShift(0.3), Remembering(0), roles={"x": "signal"})({"x": x}, index=range(4))
    alone = Pipeline(TimeShift(0.3), roles={"x": "signal"})({"x": x}, index=range(4))
    assert torch.equal(both["clean"], alone["x"])
    assert not torch.equal(both["x"], both["clean"])


class Played(Speed):
    """A subclass with extras of its own, of a class whose own need no values."""

    def extras(self, fields: Mapping[str, Tensor], params: Params) -> dict[str, Tensor]:  # noqa: ARG002
        return {"before": fields["x"]}


class Sized(AmplitudeScale):
    """A subclass that asks for the size."""

    def operations(self, x: Tensor, params: Params, role: Role) -> Sequence[Operation]:
        assert params.size == x.shape[2:]
        return super().operations(x, params, role)


class Written(AmplitudeScale):
    """A subclass that writes otherwise."""

    def write(self, out: Tensor, x: Tensor, params: Params, role: Role) -> None:  # noqa: ARG002
        out.copy_(x).neg_()


def test_extras_of_a_subclass_see_the_field_as_it_is_by_then() -> None:
    x = torch.randn(4, 1, 50)
    both = Pipeline(TimeShift(0.3), Played(), roles={"x": "signal"})({"x": x}, index=range(4))
    alone = Pipeline(TimeShift(0.3), roles={"x": "signal"})({"x": x}, index=range(4))
    assert torch.equal(both["before"], alone["x"])


def test_operations_are_told_the_size_wherever_they_stand() -> None:
    Pipeline(TimeShift(), Sized(), roles={"x": "signal"})({"x": torch.ones(4, 1, 50)})


def test_a_subclass_that_writes_otherwise_is_asked_to() -> None:
    x = torch.rand(4, 1, 8)
    assert torch.equal(Written()(x), -x)


def test_masks_of_any_dimensions_move_along_the_last() -> None:
    mask = torch.arange(24).view(2, 1, 3, 4)
    aug = Pipeline(TimeShift((1, 1), unit="samples"), roles={"x": "signal", "m": "mask"})
    moved = aug({"x": torch.ones(2, 1, 4), "m": mask})["m"]
    assert torch.equal(moved, mask.roll(1, -1))


@pytest.mark.parametrize(
    "transform", [Speed((0.5, 2)), TimeShift(0.5), TimeShift(0.5, circular=False)], ids=repr
)
def test_masks_of_half_precision_move_too(transform: Transform) -> None:
    aug = Pipeline(transform, roles={"x": "signal", "m": "mask"})
    mask = torch.arange(33).expand(5, 33)
    half, whole = (aug({"x": torch.ones(5, 1, 33), "m": m}, index=range(5)) for m in (mask.half(), mask))
    assert torch.equal(half["m"].long(), whole["m"])


def test_an_ignore_that_is_never_used_may_be_any() -> None:
    aug = Pipeline(TimeShift(0.5, ignore=-100), roles={"x": "signal", "m": "mask"})
    assert aug({"x": torch.ones(5, 1, 33), "m": torch.ones(5, 33, dtype=torch.uint8)})["m"].all()


def test_whole_numbers_are_calculated_with_as_on_a_device() -> None:
    def run(*, static: bool) -> Tensor:
        mask = TimeMask(Integers(1, 30), num_masks=4)
        x: Tensor = Pipeline(mask, roles={"x": "signal"}, static=static)({"x": x_before}, index=index)["x"]
        return x

    x_before, index = torch.ones(300, 1, 40000), torch.arange(300) + 100
    assert torch.equal(run(static=False), run(static=True))


def test_a_numba_that_does_not_work_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs NumPy 2.2 or less')")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + _SCRIPT
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0
    assert "numba is installed but does not work" in done.stderr


def test_a_pickled_pipeline_works_where_numba_is_not(tmp_path: Path) -> None:
    path = tmp_path / "pipeline"
    path.write_bytes(pickle.dumps(Pipeline(GaussianNoise(), Speed(), roles={"x": "signal"})))
    script = f"""
import pickle, torch
aug = pickle.load(open({str(path)!r}, "rb"))
print(aug({{"x": torch.ones(4, 1, 20)}}, index=range(4))["x"].sum().item())
"""
    sums = []
    for switch in ("0", "1"):
        command = ["env", f"NUMBA_DISABLE_JIT={switch}", sys.executable, "-W", "error", "-c", script]
        sums.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert sums[0] == sums[1]


def test_a_factor_that_overflows_gives_infinity_without_a_word() -> None:
    assert AmplitudeScale(1e38)(torch.full((2, 1, 4), 1e38)).isinf().all()
