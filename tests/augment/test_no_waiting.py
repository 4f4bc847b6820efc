"""Nothing is read back from the device: not on the way of draws, nor in any transform."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from augment.examples import CASES, batch_of, pipeline, roles_of
from stoker.augment import preset

READS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "nonzero",
    "nonzero_static",
    "nonzero_numpy",
    "equal",
    "masked_select",
    "unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
}


class NoReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails on every operator whose result or shape depends on values, for which a device is waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        assert name not in READS, f"{name} waits for the device"
        if name in {"index", "index_put", "index_put_"}:
            indices = [index for index in args[1] if index is not None]
            assert all(index.dtype is not torch.bool for index in indices), (
                "a boolean index waits for the device"
            )
        return func(*args, **(kwargs or {}))


def test_the_guard_fails_where_something_is_read() -> None:
    with NoReads():  # type: ignore[no-untyped-call]
        for read in (lambda x: x.item(), bool, lambda x: x[x > 0], lambda x: x.nonzero()):
            with pytest.raises(AssertionError, match="waits for the device"):
                read(torch.ones(()))


@pytest.mark.parametrize("static", [False, True], ids=["rows", "static"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_no_transform_reads_from_the_device(case: tuple[str, int], static: bool) -> None:
    batch = batch_of(roles_of(case), 9)
    aug = pipeline(case, static=static, p=0.6)
    with NoReads():  # type: ignore[no-untyped-call]
        aug(batch, index=batch["index"].tolist(), epoch=1)


META = torch.device("meta")  # has shapes and no values: what would read one fails, as does mixing devices


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_samples_and_numbers_on_the_device_stay_there(case: tuple[str, int]) -> None:
    batch = {name: value.to(META) for name, value in batch_of(roles_of(case), 9).items()}
    after = pipeline(case, p=0.6)(batch, epoch=1)
    assert {value.device for value in after.values()} == {META}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_samples_on_the_device_take_draws_from_the_host(case: tuple[str, int]) -> None:
    batch = {name: value.to(META) for name, value in batch_of(roles_of(case), 9).items()}
    after = pipeline(case, p=0.6)(batch, index=range(9), epoch=1)
    assert {value.device for value in after.values()} == {META}


def test_a_whole_policy_runs_on_a_device_that_cannot_be_read() -> None:
    x = torch.empty(8, 1, 400, device=META)
    after = preset("heart_sounds")({"x": x}, index=torch.empty(8, dtype=torch.int64, device=META))
    assert after["x"].shape == x.shape
