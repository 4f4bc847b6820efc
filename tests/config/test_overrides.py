import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from stoker.config import Settings, resolve
from stoker.config._overrides import apply, parse
from stoker.errors import ConfigError


class Stage(Settings):
    width: int = 1


class Run(Settings):
    name: str = "run"
    note: str | None = None
    fast: bool = False
    rate: float = 0.1
    sizes: tuple[int, ...] = (1, 2, 3)
    weights: dict[int, float] = Field(default_factory=dict)
    roles: dict[str, str] = Field(default_factory=dict)
    stage: Stage = Field(default_factory=Stage)
    stages: tuple[Stage, ...] = ()


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a=1", ("a",), 1),
        ("a.b.0=x", ("a", "b", "0"), "x"),
        (" a . b = 2 ", ("a", "b"), 2),
        ("a=1e-3", ("a",), 1e-3),
        ("a=true", ("a",), True),
        ("a=on", ("a",), "on"),
        ("a=null", ("a",), None),
        ("a=", ("a",), None),
        ('a=""', ("a",), ""),
        ('a="10"', ("a",), "10"),
        ("a=b=c", ("a",), "b=c"),
        ("a=some words", ("a",), "some words"),
        ("a=/data/x.wav", ("a",), "/data/x.wav"),
        ("a=http://x:80/y", ("a",), "http://x:80/y"),
        ("a=[1, b, 2.5]", ("a",), [1, "b", 2.5]),
        ("a={b: 1}", ("a",), {"b": 1}),
    ],
)
def test_an_override_is_a_dotted_path_and_a_yaml_value(
    text: str, path: tuple[str, ...], value: object
) -> None:
    override = parse(text)
    assert (override.path, override.value) == (path, value)
    assert type(override.value) is type(value)


@pytest.mark.parametrize("text", ["", "a.b", "=1", " =1", ".a=1", "a.=1", "a..b=1"])
def test_a_malformed_override_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, {}, overrides=[text])
    message = str(caught.value)
    assert message.startswith(f"--set {text}: an override must be of the form key.key=value")
    assert f"got {text!r}; write for example --set loader.batch_size=64" in message


@pytest.mark.parametrize("value", ["[1", "*.wav", "a: b", "- a", "@x", "'x"])
def test_a_value_that_is_no_scalar_or_flow_yaml_is_refused_with_the_way_to_quote_it(
    value: str,
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, {}, overrides=[f"name={value}"])
    assert f"got {value!r} (" in str(caught.value)
    assert "to give it as text write --set 'name=\"...\"'" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "override", "place"),
    [
        ({"name": "a"}, "name.x=1", "'name' is 'a'"),
        ({"sizes": [1, 2]}, "sizes.0.x=1", "'sizes.0' is 1"),
    ],
)
def test_a_path_through_a_scalar_is_refused(data: dict[str, object], override: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, data, overrides=[override])
    assert f"a path must go through mappings and lists, but {place}" in str(caught.value)


@pytest.mark.parametrize("position", ["2", "-1", "x", "00", "9" * 5000])
def test_a_position_outside_the_list_is_refused(position: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Run, {"sizes": [1, 2]}, overrides=[f"sizes.{position}=5"])
    assert f"one of its 2 positions, counted from 0, got {position!r}" in str(caught.value)
    assert "--set 'sizes=[...]'" in str(caught.value)


def test_an_item_of_a_list_that_is_only_a_default_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"^--set sizes\.0=5: .* give the whole list"):
        resolve(Run, {}, overrides=["sizes.0=5"])


def test_missing_sections_and_nulls_on_the_way_become_sections() -> None:
    assert resolve(Run, {}, overrides=["stage.width=5"]).stage.width == 5
    assert resolve(Run, {"stage": None}, overrides=["stage.width=5"]).stage.width == 5


def test_items_of_lists_can_be_sections() -> None:
    data = {"stages": [{"width": 1}, {"width": 2}]}
    run = resolve(Run, data, overrides=["stages.1.width=7"])
    assert [stage.width for stage in run.stages] == [1, 7]


def test_a_number_that_is_a_key_in_the_data_is_replaced_and_not_doubled() -> None:
    run = resolve(Run, {"weights": {1: 0.5}}, overrides=["weights.1=0.25", "weights.2=1"])
    assert run.weights == {1: 0.25, 2: 1.0}


def test_an_override_changes_only_one_of_two_places_that_share_an_anchor() -> None:
    shared = {"width": 1}
    data = {"stages": [shared, shared]}
    assert apply(data, parse("stages.0.width=9")) == {"stages": [{"width": 9}, {"width": 1}]}
    assert shared == {"width": 1}


KEYS = st.text("abcd_", min_size=1, max_size=3)
SECTIONS = st.recursive(
    st.dictionaries(KEYS, st.integers() | st.booleans() | KEYS, max_size=3),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=50)
@given(data=SECTIONS, path=st.lists(KEYS, min_size=1, max_size=4), value=st.integers())
def test_an_override_equals_nesting_the_value_directly(
    data: dict[str, object], path: list[str], value: int
) -> None:
    expected = _nested(data, path, value)
    override = parse(f"{'.'.join(path)}={value}")
    if expected is None:
        with pytest.raises(ConfigError, match="must go through mappings"):
            apply(data, override)
    else:
        assert apply(data, override) == expected


def _nested(data: object, path: list[str], value: object) -> dict[str, object] | None:
    """Give a changed copy, written as plainly as can be; None if the path meets a scalar."""
    if not isinstance(data, dict):
        return None
    copy = dict(data)
    key, *rest = path
    if rest:
        copy[key] = _nested(copy.get(key, {}), rest, value)
        return None if copy[key] is None else copy
    copy[key] = value
    return copy


@settings(deadline=None, max_examples=50)
@given(
    name=st.text("abc xyz", min_size=1).map(str.strip).filter(bool),
    fast=st.booleans(),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    sizes=st.lists(st.integers(), max_size=4),
    width=st.integers(),
)
def test_settings_made_by_overrides_equal_settings_made_by_data(
    name: str, fast: bool, rate: float, sizes: list[int], width: int
) -> None:
    data = {"name": name, "fast": fast, "rate": rate, "sizes": sizes, "stage": {"width": width}}
    overrides = [
        f"name={name}",
        f"fast={str(fast).lower()}",
        f"rate={rate!r}",
        f"sizes={sizes}",
        f"stage.width={width}",
    ]
    assert resolve(Run, {}, overrides=overrides) == resolve(Run, data)
