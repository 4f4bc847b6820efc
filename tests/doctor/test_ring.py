import os
import struct
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from stoker.doctor.making import _ring
from stoker.doctor.making._ring import NUM_FIGURES, NUM_RECORDS, Reader, Writer


def figures(number: int) -> tuple[int, ...]:
    return tuple(range(number, number + NUM_FIGURES))


def region(folder: Path) -> Path:
    return folder / "w-0.ring"


def test_a_reader_gets_each_record_once_with_its_names(tmp_path: Path) -> None:
    writer = Writer.claim(tmp_path, "w")
    slots = [writer.slot("Crop"), writer.slot("Flip"), writer.slot("Crop")]
    assert slots == [0, 1, 0]
    writer.write(figures(1), [5, 6])
    reader = Reader(region(tmp_path))
    (row,) = reader.read()
    assert row.figures == figures(1)
    assert row.named == {"Crop": 5, "Flip": 6}
    writer.write(figures(2), [])
    assert [row.figures for row in reader.read()] == [figures(2)]
    assert reader.read() == []
    reader.close()
    writer.close()


@hypothesis.settings(max_examples=15, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(st.lists(st.integers(0, 2 * NUM_RECORDS), min_size=1, max_size=4))
def test_what_is_not_read_in_time_is_counted(tmp_path: Path, bursts: list[int]) -> None:
    region(tmp_path).unlink(missing_ok=True)
    writer = Writer.claim(tmp_path, "w")
    reader = Reader(region(tmp_path))
    written = read = 0
    for burst in bursts:
        for _ in range(burst):
            writer.write(figures(written), [])
            written += 1
        rows = reader.read()
        assert [row.figures[0] for row in rows] == list(range(written - len(rows), written))
        assert len(rows) == min(burst, NUM_RECORDS)
        read += len(rows)
    assert read + reader.num_lost == written
    reader.close()
    writer.close()


def test_a_record_under_way_is_left_out(tmp_path: Path) -> None:
    writer = Writer.claim(tmp_path, "w")
    writer.write(figures(1), [])
    writer.write(figures(2), [])
    with region(tmp_path).open("r+b") as file:  # as a writer that was killed in the midst of it leaves it
        file.seek(_ring._FIRST_RECORD + _ring._RECORD.size)
        file.write(struct.pack("<Q", 0))
    reader = Reader(region(tmp_path))
    assert [row.figures for row in reader.read()] == [figures(1)]
    assert reader.num_lost == 1
    reader.close()
    writer.close()


def test_a_living_writer_keeps_its_region_and_a_dead_ones_is_used_again(tmp_path: Path) -> None:
    first, second = Writer.claim(tmp_path, "w"), Writer.claim(tmp_path, "w")
    first.slot("Crop")
    first.write(figures(1), [3])
    first.write_table(b"lines")
    first.close()
    third = Writer.claim(tmp_path, "w")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w-0.ring", "w-1.ring"]
    assert third.read_table() == b"lines"
    assert third.slot("Flip") == 1
    third.write(figures(2), [0, 4])
    reader = Reader(region(tmp_path))
    assert [row.named for row in reader.read()] == [{"Crop": 3}, {"Crop": 0, "Flip": 4}]
    reader.close()
    second.close()
    third.close()


def test_names_beyond_the_last_slot_share_it(tmp_path: Path) -> None:
    writer = Writer.claim(tmp_path, "w")
    slots = [writer.slot(f"Transform {number}") for number in range(_ring.MAX_NAMES + 5)]
    assert slots[:-6] == list(range(_ring.MAX_NAMES - 1))
    assert set(slots[-6:]) == {_ring.MAX_NAMES - 1}
    writer.write(figures(1), [1] * _ring.MAX_NAMES)
    reader = Reader(region(tmp_path))
    (row,) = reader.read()
    assert list(row.named)[-1] == "others"
    reader.close()
    writer.close()


def test_a_table_is_replaced_as_a_whole(tmp_path: Path) -> None:
    writer = Writer.claim(tmp_path, "w")
    reader = Reader(region(tmp_path))
    assert reader.read_table() == b""
    for text in (b"a" * 100, b"b" * 50_000, b"c"):
        writer.write_table(text)
        assert reader.read_table() == text
    writer.write_table(b"d" * 100_000)
    assert reader.read_table() == b"c"
    reader.close()
    writer.close()


def test_a_full_disk_is_an_error_before_the_region_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(OSError, match="No space left"):
        Writer.claim(tmp_path, "w")
