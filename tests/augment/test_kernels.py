"""Loops compiled by numba give the bits of the operators that they stand for."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from augment.examples import CASES, batch_of, pipeline, roles_of
from stoker.augment import Pipeline, Role, Transform, _kernels
from stoker.augment.signal import FrequencyMask, GaussianNoise, Speed, TimeMask, TimeShift

Case = tuple[str, int]


def bits(x: Tensor) -> Tensor:
    return x.view({4: torch.int32, 8: torch.int64}[x.dtype.itemsize]) if x.is_floating_point() else x


def without(run: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What it gives where numba is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernels, "are_installed", lambda: False)
        return run()


def test_they_are_installed_where_everything_is_tested() -> None:
    assert _kernels.are_installed()


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
from stoker.augment.signal import TimeMask
print(TimeMask(20)(torch.ones(64, 1, 100)).sum().item())
"""


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
    command = "from stoker.augment import _kernels; print(_kernels.are_installed())"
    found = subprocess.run(
        ["env", "NUMBA_DISABLE_JIT=1", sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "False\n"
