from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from doctor.example_records import EXAMPLES, Example, compute_bound, crashed, hostile, input_bound
from stoker.doctor._check import CheckResult, StageChange
from stoker.doctor._diagnosis import Cause, Interval
from stoker.doctor._record import Place
from stoker.doctor.report import print_check, print_diagnosis
from stoker.doctor.report._terminal import split_cells


def printed(example: Example, *, width: int = 80, terminal: bool = False, soft_wrap: bool = False) -> str:
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        soft_wrap=soft_wrap,
        legacy_windows=False,
        _environ={},
    )
    print_diagnosis(console, example.diagnosis, example.record, comparison=example.comparison)
    return file.getvalue()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("soft_wrap", [False, True])
def test_it_fits_eighty_columns_in_plain_text(name: str, soft_wrap: bool) -> None:
    text = printed(EXAMPLES[name](), soft_wrap=soft_wrap)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_it_says_verdict_stages_ceiling_culprit_advice_and_cost() -> None:
    text = " ".join(printed(input_bound()).split())
    for said in (
        "INPUT-BOUND the model waits for data, 93 % sure",
        "The model waits for data 71 % of a step",
        "W waiting for data 29.3 ms 71 %",
        "augmentation: not observed (no augmentation ran on the device)",
        "Ceiling 3.46× (3.31–3.58×)",  # noqa: RUF001
        "To blame RandomElastic.__call__ augment.py:41 x = map_coordinates(x, grid, order=1)",
        "1. Give the training loader 7 workers",
        "train.py:88, 1.4 GB more memory",
        "changes training",
        "achieved 2.69× (2.58–2.79×), predicted 2.74× (2.41–2.93×)",  # noqa: RUF001
        "The doctor's own cost: 12.3 µs a step, 0.03 %.",
    ):
        assert said in text, said


def test_without_colours_the_bar_is_drawn_in_letters() -> None:
    lines = printed(input_bound(), width=100).splitlines()
    bar = next(line for line in lines if line.startswith("WWW"))
    assert len(bar) == 100
    assert sorted(set(bar)) == sorted("WCFBO-")
    assert 69 <= bar.count("W") <= 73


def test_with_colours_it_is_drawn_in_blocks() -> None:
    text = printed(input_bound(), terminal=True)
    assert "█" in text
    assert "WWW" not in text


def test_a_terminal_without_colours_gets_letters_too() -> None:
    file = StringIO()
    example = input_bound()
    console = Console(file=file, width=80, force_terminal=True, no_color=True, _environ={})
    print_diagnosis(console, example.diagnosis, example.record)
    assert "WWW" in file.getvalue()


def test_hostile_strings_neither_style_nor_move_the_cursor() -> None:
    text = printed(hostile())
    assert "[bold red]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    coloured = printed(hostile(), terminal=True)
    assert "\x1b[31m'" not in coloured
    assert "\N{REPLACEMENT CHARACTER}[31m" in coloured


def test_a_crash_is_said_first() -> None:
    text = printed(crashed())
    assert "The script crashed (exit code 1): RuntimeError: DataLoader worker (pid 4711)" in text
    assert text.index("The script crashed") < text.index("Where a step's time goes")


def test_the_line_to_blame_is_the_culprits_own() -> None:
    record, diagnosis, _ = input_bound()
    computing, loading = (
        Cause("compute", 0.9, "the model's own computing"),
        Cause("transfer", 0.1, "transfer: 2 ms of 3 ms a batch", Place("train.py", 68, "DataLoader(", "run")),
    )
    text = printed(Example(record, replace(diagnosis, culprit=computing.text, causes=(computing, loading))))
    assert "train.py:68" not in text.split("To blame")[1].split("Causes")[0]
    assert "transfer: 2 ms" in text
    assert "transfer: transfer" not in text
    text = printed(Example(record, replace(diagnosis, culprit=loading.text, causes=(computing, loading))))
    assert "train.py:68" in text.split("To blame")[1].split("Causes")[0]


def test_nothing_to_gain_is_said_plainly() -> None:
    assert "Leave the loader alone." in printed(compute_bound())


def test_of_many_advices_the_first_five_are_shown() -> None:
    record, diagnosis, _ = input_bound()
    many = tuple(
        replace(diagnosis.advice[0], action=f"Do thing number {number}", reason="", place=None)
        for number in range(1, 9)
    )
    text = printed(Example(record, replace(diagnosis, advice=many)))
    assert "Do thing number 5" in text
    assert "Do thing number 6" not in text
    assert "and 3 more in the report" in text


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), max_size=9), st.integers(1, 120))
def test_cells_fill_the_width_and_leave_nothing_out(shares: dict[str, float], width: int) -> None:
    cells = split_cells(shares, width=width)
    seen = [name for name, share in shares.items() if share > 0]
    assert sum(cells.values()) == (width if seen else 0)
    assert all(number >= 1 for number in cells.values())
    if len(seen) <= width:
        assert list(cells) == seen


def checked(*, ok: bool) -> str:
    file = StringIO()
    result = CheckResult(
        ok=ok,
        slowdown=Interval(0.071, 0.058, 0.084),
        noise=0.013,
        stages={
            "forward": StageChange(0.01, 0.0101, Interval(0.0001, -0.001, 0.001), is_significant=False),
            "wait": StageChange(0.001, 0.004, Interval(0.003, 0.002, 0.004), is_significant=True),
        },
        sentence="Slower by 7.1% [red]",
    )
    print_check(Console(file=file, width=80, _environ={}), result)
    return file.getvalue()


def test_a_check_says_which_stage_changed_and_what_is_noise() -> None:
    lines = [" ".join(line.split()) for line in checked(ok=False).splitlines()]
    assert lines == [
        "SLOWER Slower by 7.1% [red]",
        "a step takes 107 % of the baseline's, ± 1.3 %",
        "waiting for data 1.00 ms 4.00 ms +3.00 ms",
        "forward 10.0 ms 10.1 ms +100 µs within noise",
    ]
    assert checked(ok=True).startswith("OK  ")
