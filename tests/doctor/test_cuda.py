"""The device's time for the host's marks."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.doctor.probes._cuda import in_order


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_device_times_never_go_back(times: list[tuple[int, int]]) -> None:
    found = in_order(times)
    assert set(found) == {host for host, _ in times}
    ordered = [found[host] for host in sorted(found)]
    assert ordered == sorted(ordered)
    for host, time in times:
        assert found[host] >= time


def test_a_copy_behind_other_work_takes_no_time() -> None:
    found = in_order([(0, 0), (1, 100), (2, 30), (3, 50), (4, 120)])
    assert found == {0: 0, 1: 100, 2: 100, 3: 100, 4: 120}
