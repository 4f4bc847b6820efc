import math

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.config import Settings, resolve
from stoker.config._yaml import describe, parse, parse_inline, write


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-2e+3", -2e3),
        (".5", 0.5),
        ("5.", 5.0),
        ("+.inf", math.inf),
        ("-.INF", -math.inf),
        ("12", 12),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_nan_is_a_number() -> None:
    value = parse(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "off",
        "yes",
        "No",
        "y",
        "1:30",
        "2024-01-01",
        "1_000",
        "0b11",
        "1e",
        "e5",
        ".",
        "1.2.3",
    ],
)
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(text: str) -> None:
    assert parse(text) == text


class Switch(Settings):
    enabled: bool = False
    country: str = ""


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("on", True), ("off", False), ("yes", True), ("no", False), ("true", True), ("false", False)],
)
def test_a_boolean_setting_takes_words_and_a_text_setting_keeps_them(word: str, meaning: bool) -> None:
    assert resolve(Switch, {}, overrides=[f"enabled={word}"]).enabled is meaning
    if word not in {"true", "false"}:
        assert resolve(Switch, {}, overrides=[f"country={word}"]).country == word


def test_a_key_that_overrides_a_merged_one_is_no_duplicate() -> None:
    text = "base: &base {a: 1, b: 2}\nmid: &mid {<<: *base, a: 3}\ntop: {<<: *mid, b: 4}\n"
    assert parse(text) == {
        "base": {"a": 1, "b": 2},
        "mid": {"a": 3, "b": 2},
        "top": {"a": 3, "b": 4},
    }


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{a: 1, 'a': 2}", "'a'"),
        ("{1: 1, 0x1: 2}", "1"),
        ("{x: &x {}, y: {<<: *x, <<: *x}}", "'<<'"),
        ("- {a: {b: 1, b: 1}}", "'b'"),
    ],
)
def test_keys_that_mean_the_same_are_duplicates(text: str, key: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        parse(text)
    assert describe(caught.value, text) == (1, f"the key {key} again (first on line 1)")


@pytest.mark.parametrize("text", ["a: b", "- a", "a: [1]"])
def test_a_value_in_block_form_is_not_taken_inline(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="block list or mapping"):
        parse_inline(text)


def test_shared_data_is_written_in_full() -> None:
    shared = [1, 2]
    assert write({"a": shared, "b": shared}) == "a:\n- 1\n- 2\nb:\n- 1\n- 2\n"


@settings(deadline=None, max_examples=50)
@given(st.text(st.sampled_from("ab1.-+e:_ \n[]{}!&*<>#%'\"|?,=~")) | st.text())
@example("!!timestamp x")
@example("!!float x")
@example("!!binary x\N{SNOWMAN}")
@example("!!omap [1]")
@example("!!set [1]")
@example("&a [*a]")
def test_any_text_is_either_read_or_refused_as_yaml(text: str) -> None:
    try:
        parse(text)
    except yaml.YAMLError as error:
        line, why = describe(error, text)
        assert why
        assert line is None or line >= 1


TEXT = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["1e3", "no", "0o7", "1:30", "010", "<<", "=", "~", "", " a", "a ", "a: b", "#a", "0b1", "1_0"]
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(PLAIN)
@example("\x85")
@example({"\u2028 a": "\n"})
def test_plain_data_comes_back_as_it_was_written(data: object) -> None:
    assert parse(write(data)) == data


@settings(deadline=None, max_examples=50)
@given(PLAIN)
def test_what_is_written_means_the_same_to_a_yaml_1_1_reader(data: object) -> None:
    assert yaml.safe_load(write(data)) == data
