"""Memory that is copied into."""

import sys

import numpy as np
import pytest
import torch

from stoker.store._memory import empty, owner


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7), (1 << 20,), (16, 64, 512)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128])
def test_empty_begins_on_a_cache_line(shape: tuple[int, ...], dtype: type) -> None:
    array = empty(shape, np.dtype(dtype))
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % 64 == 0 or array.nbytes == 0
    array[...] = 1
    assert array.sum() == array.size


@pytest.mark.parametrize("is_torchs", [False, True])
def test_slices_are_counted_by_the_array_they_were_cut_from(is_torchs: bool) -> None:
    # with a GPU, slots are memory of torch's
    memory = torch.empty(400, dtype=torch.uint8).numpy().data if is_torchs else np.empty(400, np.uint8).data
    array = owner(memory, (10, 10), np.dtype(np.float32))
    before = sys.getrefcount(array)
    tensor = torch.from_numpy(array[2:4])
    assert sys.getrefcount(array) == before + 1
    part = tensor[0]
    del tensor
    assert sys.getrefcount(array) == before + 1
    del part
    assert sys.getrefcount(array) == before
