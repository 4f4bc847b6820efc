from pathlib import Path

import pytest
from pydantic import Field

from stoker.config import Settings, dump, load, resolve
from stoker.errors import ConfigError


class Loader(Settings):
    batch_size: int = Field(default=8, ge=1)
    shuffle: bool = True


class Run(Settings):
    name: str = "run"
    learning_rate: float = 0.1
    sizes: tuple[int, ...] = ()
    loader: Loader = Field(default_factory=Loader)


WHOLE = Run(name="a", learning_rate=1e-3, sizes=(1, 2), loader=Loader(batch_size=4, shuffle=False))
YAML = "name: a\nlearning_rate: 1e-3\nsizes: [1, 2]\nloader:\n  batch_size: 4\n  shuffle: no\n"
JSON = '{"name": "a", "learning_rate": 1e-3, "sizes": [1, 2], "loader": {"batch_size": 4, "shuffle": false}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", YAML), ("a.yml", YAML), ("a.YAML", YAML), ("a.json", JSON), ("a.JSON", JSON)],
)
def test_the_suffix_decides_how_a_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load(Run, path) == WHOLE
    assert load(Run, str(path)) == WHOLE


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing set yet\n", "---\n", "\ufeff"])
def test_an_empty_yaml_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert load(Run, path) == Run()


@pytest.mark.parametrize("text", ["", " \n", "\ufeff", "{}"])
def test_an_empty_json_file_gives_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert load(Run, path) == Run()


def test_a_file_may_begin_with_a_byte_order_mark_and_end_its_lines_like_windows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + YAML.replace("\n", "\r\n").encode())
    assert load(Run, path) == WHOLE


def test_overrides_win_over_the_file_and_the_last_over_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    settings = load(Run, path, overrides=["name=b", "loader.batch_size=5", "name=c", "sizes.1=9"])
    assert settings == Run(
        name="c", learning_rate=1e-3, sizes=(1, 9), loader=Loader(batch_size=5, shuffle=False)
    )


def test_a_dict_is_resolved_like_a_file_and_left_unchanged() -> None:
    data = {"loader": {"batch_size": 4}, "sizes": [1, 2]}
    settings = resolve(Run, data, overrides=["loader.batch_size=5", "sizes.0=7"])
    assert settings == Run(loader=Loader(batch_size=5), sizes=(7, 2))
    assert data == {"loader": {"batch_size": 4}, "sizes": [1, 2]}


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Run, path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_refused_with_the_place_that_was_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(Path("none.yaml"))
    assert message.startswith("none.yaml: the settings file must exist")
    assert str(tmp_path / "none.yaml") in message


def test_a_directory_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a.yaml"
    folder.mkdir()
    assert "must be a file, got a directory" in refusal(folder)


def test_a_file_on_the_way_to_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "must be readable, got Not a directory" in refusal(tmp_path / "file" / "a.yaml")


@pytest.mark.parametrize(("name", "got"), [("a.toml", "'.toml'"), ("a", "'no suffix'")])
def test_another_suffix_is_refused_even_if_the_file_is_missing(tmp_path: Path, name: str, got: str) -> None:
    assert f"must end in .yaml, .yml or .json, got {got}" in refusal(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"name: \xff\n")
    assert "must be UTF-8 text, got byte 0xff at 6" in refusal(path)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.yaml", "name: a\nsizes: [1, 2\nloader: {}\n", 3),
        ("a.yaml", "name: a\n\tsizes: 3\n", 2),
        ("a.yaml", "name: a\n---\nname: b\n", 2),
        ("a.yaml", "name: a\nsizes: !!python/object/apply:os.getcwd []\n", 2),
        ("a.yaml", "name: a\nsizes: \x07\n", 2),
        ("a.yaml", "name: a\n? [1]\n: 2\n", 2),
        ("a.json", '{"name": "a",\n "sizes": [1, 2}', 2),
        ("a.json", '{"name": "a"}\n{}', 2),
    ],
)
def test_broken_text_is_refused_with_its_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    path = tmp_path / name
    path.write_text(text)
    message = refusal(path)
    assert message.startswith(f"{path}, line {line}: a settings file must be valid ")
    assert "correct it there" in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "name: !!int x\n"),
        ("a.yaml", "name: !!bool x\n"),
        ("a.yaml", "name: !!timestamp x\n"),
        ("a.yaml", f"name: {'9' * 5000}\n"),
        ("a.yaml", "[" * 1000),
        ("a.json", "[" * 200_000),
        ("a.json", '{"name": ' + "9" * 5000 + "}"),
    ],
)
def test_values_that_the_parsers_choke_on_are_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert "a settings file must be valid " in refusal(path)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.yaml", "- 1\n", "list"),
        ("a.yaml", "some words\n", "str"),
        ("a.json", "3", "int"),
    ],
)
def test_a_top_level_that_is_no_mapping_is_refused(tmp_path: Path, name: str, text: str, kind: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert f"must be a mapping of keys to values, got a {kind};" in refusal(path)


def test_data_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a mapping of keys to values, got a str"):
        resolve(Run, "a.yaml")  # type: ignore[arg-type]


def test_a_repeated_yaml_key_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("loader:\n  batch_size: 1\n  shuffle: true\n  batch_size: 2\n")
    message = refusal(path)
    assert message.startswith(f"{path}, line 4: ")
    assert "the key 'batch_size' again (first on line 2)" in message


def test_a_repeated_json_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"loader": {"batch_size": 1, "shuffle": true, "batch_size": 2}}')
    assert "with each key once, got: the key 'batch_size' twice in one object" in refusal(path)


def test_dump_refuses_another_suffix_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(ConfigError, match=r"got '\.toml'"):
        dump(Run(), path)
    assert not path.exists()


def test_dump_refuses_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in a folder that exists, got No such file"):
        dump(Run(), tmp_path / "none" / "a.yaml")
