import multiprocessing
import os
import sys
import threading
import time
import types

import hypothesis
import hypothesis.strategies as st
import pytest

from stoker.doctor.sampling import _resources
from stoker.doctor.sampling._resources import MemoryReader, ResourceWatch, Sight

STAT = """\
cpu  300 0 100 1400 200 0 0 0 0 0
cpu0 100 0 50 850 0 0 0 0 0 0
cpu1 200 0 50 550 200 0 0 0 50 0
intr 12345 0 1
btime 1700000000
"""


def hold(ready: "multiprocessing.synchronize.Event", over: "multiprocessing.synchronize.Event") -> None:
    """A child with 40 MB of its own."""
    memory = bytearray(os.urandom(1 << 20) * 40)
    ready.set()
    over.wait()
    assert memory


def test_a_run_is_watched_with_its_children() -> None:
    context = multiprocessing.get_context("fork")
    ready, over = context.Event(), context.Event()
    child = context.Process(target=hold, args=(ready, over))
    child.start()
    ready.wait()
    assert _resources.descendants(os.getpid()) == [child.pid]
    begin_ns = time.perf_counter_ns()
    enough = threading.Event()
    with ResourceWatch(interval_s=0.01, begin_ns=begin_ns - 10**9) as watch:
        while len(watch._moments) < 5:
            enough.wait(0.01)
    moments = watch.stop()
    over.set()
    child.join()
    for moment in moments:
        assert 40 << 20 < moment.worker_memory_bytes < moment.memory_bytes
        assert len(moment.core_use) == os.cpu_count()
        assert all(0 <= use <= 1 for use in moment.core_use)
        assert moment.process_cpu >= 0
        assert moment.accelerator_use is None or 0 <= moment.accelerator_use <= 1
    times = [moment.time_s for moment in moments]
    assert times == sorted(times)
    assert times[0] > 1  # counted from what was said to be the beginning


def test_each_core_is_read_apart() -> None:
    assert _resources.core_ticks(STAT) == [(150, 1000), (250, 1000)]


def test_use_of_cores_is_the_busy_share_between_two_readings() -> None:
    before, now = [(100, 1000), (0, 500), (5, 5)], [(150, 1100), (0, 600), (5, 5)]
    assert _resources.core_use(before, now) == (0.5, 0.0, 0.0)


@hypothesis.given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8), st.randoms())
def test_use_of_cores_is_a_share_whatever_the_counters_do(
    before: list[tuple[int, int]], random: "types.ModuleType"
) -> None:
    now = [(busy + random.randint(-5, 50), total + random.randint(-5, 50)) for busy, total in before]
    assert all(0 <= use <= 1 for use in _resources.core_use(before, now))


def test_processor_ticks_are_read_past_any_name() -> None:
    name = "a) b (c"
    assert _resources.cpu_ticks(f"12 ({name}) S 1 1 1 0 -1 4 0 0 0 0 70 30 0 0 20 0 1 0 5 0 0") == 100


def test_a_new_process_counts_from_its_beginning() -> None:
    before = Sight(time_s=1.0, cores=[], processes={1: 100, 2: 50})
    now = Sight(time_s=3.0, cores=[], processes={1: 200, 3: 60})
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert _resources.cpu_use(before, now) == pytest.approx((100 + 60) * tick_s / 2)


def test_long_runs_keep_half_of_their_moments_and_take_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resources, "_MAX_MOMENTS", 4)
    enough = threading.Event()
    with ResourceWatch(interval_s=0.001) as watch:
        while watch._interval_s < 0.004:
            enough.wait(0.001)
    assert len(watch.stop()) < 4


def test_memory_that_is_slow_to_read_is_read_seldom_and_followed_by_resident_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, took = 0.0, 0.02
    proportional, resident = 100, 150

    def read_slowly(_: int) -> int:
        nonlocal now
        now += took
        return proportional

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(_resources, "_proportional", read_slowly)
    monkeypatch.setattr(_resources, "_resident", lambda _: resident)
    reader = MemoryReader()
    assert reader.read([1]) == (100, 0)
    now, proportional, resident = 1.0, 300, 170
    assert reader.read([1]) == (120, 0)
    now = 2.1  # 20 ms every 2 s are one percent
    assert reader.read([1]) == (300, 0)


def test_a_process_that_has_ended_has_no_memory() -> None:
    reader = MemoryReader()
    assert reader.read([2**22 + 1]) == (0, 0)
    own, others = reader.read([os.getpid(), 2**22 + 1])
    assert own > 1 << 20
    assert others == 0
    assert reader.read([]) == (0, 0)


@pytest.mark.parametrize(("visible", "asked"), [(None, 0), ("2,3", 2), ("GPU-abc", "GPU-abc")])
def test_the_first_visible_accelerator_is_asked_through_nvml(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, asked: int | str
) -> None:
    library = types.ModuleType("pynvml")
    library.__dict__.update(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=50 if handle == asked else 0),
        NVMLError=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    use = _resources._accelerator()
    assert use is not None
    assert use() == 0.5
