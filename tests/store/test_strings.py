"""Tables of strings."""

import pytest

from stoker.store import _strings
from stoker.store._strings import Strings


@pytest.mark.parametrize("count", [0, 1, 9, 10, 101, 1000])
def test_a_table_of_numbers_is_that_of_their_digits(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_strings, "_BLOCK", 100)
    table = Strings.numbers(count, 3)
    assert table == Strings.of(f"{number:03d}" for number in range(count))
    assert list(table) == [f"{number:03d}" for number in range(count)]
    assert table.offsets.dtype == "int64"
