"""Rewriting DataLoader calls: the wanted keywords, nothing else, and a diff that the real git applies."""

import ast
import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from stoker.doctor.mending._patch import Edit, diff, make_patch
from stoker.doctor.mending._rewrite import POSITIONAL, RefusedError, rewrite_call, with_import, with_statement

WORKERS = {"num_workers": 4, "persistent_workers": True}


def rewritten(source: str, keywords: dict[str, Any], **options: Any) -> str:
    line = next(number for number, text in enumerate(source.split("\n"), 1) if "DataLoader(" in text)
    return rewrite_call(source, line, keywords, **options)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def test_positions_are_those_of_torch() -> None:
    parameters = list(inspect.signature(DataLoader.__init__).parameters.values())[1:]
    assert tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD) == POSITIONAL


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("l = DataLoader(data)", "l = DataLoader(data, num_workers=4)"),
        ("l = DataLoader(data, )", "l = DataLoader(data, num_workers=4, )"),
        ("l = DataLoader(data, num_workers=0)  # todo", "l = DataLoader(data, num_workers=4)  # todo"),
        ("l = DataLoader(data, 8, True, None, None, 1)", "l = DataLoader(data, 8, True, None, None, 4)"),
        ("l = DataLoader(data, num_workers=(cpus() // 2))", "l = DataLoader(data, num_workers=(4))"),
        (
            "l = torch.utils.data.DataLoader(f(a, b))",
            "l = torch.utils.data.DataLoader(f(a, b), num_workers=4)",
        ),
        ("l = DataLoader(d, num_workers=0, **more)", "l = DataLoader(d, num_workers=4, **more)"),
        (
            "l = DataLoader(\n    data,\n    batch_size=8,  # fits\n)",
            "l = DataLoader(\n    data,\n    batch_size=8,  # fits\n    num_workers=4,\n)",
        ),
        (
            "l = DataLoader(\n    data,\n    batch_size=8  # fits\n)",
            "l = DataLoader(\n    data,\n    batch_size=8,  # fits\n    num_workers=4\n)",
        ),
        (
            "l = DataLoader(data,\n               shuffle=True)  # here",
            "l = DataLoader(data,\n               shuffle=True,\n               num_workers=4)  # here",
        ),
        (
            "l = DataLoader(\n    data, shuffle=True\n)",
            "l = DataLoader(\n    data, shuffle=True, num_workers=4\n)",
        ),
        (
            "l = DataLoader(data, collate_fn=lambda a, b=1: a)",
            "l = DataLoader(data, collate_fn=lambda a, b=1: a, num_workers=4)",
        ),
        ("l = DataLoader('ü€', name='é')", "l = DataLoader('ü€', name='é', num_workers=4)"),
        (
            "l = DataLoader(\r\n    data,\r\n)\r\n",
            "l = DataLoader(\r\n    data,\r\n    num_workers=4,\r\n)\r\n",
        ),
        (
            "l = {k: DataLoader(d[k], shuffle=k == 'a') for k in d}",
            "l = {k: DataLoader(d[k], shuffle=k == 'a', num_workers=4) for k in d}",
        ),
    ],
)
def test_a_setting_is_written_as_its_neighbours_are(before: str, after: str) -> None:
    assert rewritten(before, {"num_workers": 4}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "DataLoader(d, num_workers=2, prefetch_factor=4, persistent_workers=True)",
            "DataLoader(d, num_workers=0)",
        ),
        (
            "DataLoader(d, prefetch_factor=4, persistent_workers=True, num_workers=2)",
            "DataLoader(d, num_workers=0)",
        ),
        (
            "DataLoader(\n    d,\n    num_workers=2,\n    prefetch_factor=4,  # more\n    shuffle=True,\n)",
            "DataLoader(\n    d,\n    num_workers=0,\n    shuffle=True,\n)",
        ),
        (
            "DataLoader(\n    d,\n    num_workers=2,\n    persistent_workers=(\n        True\n    )\n)",
            "DataLoader(\n    d,\n    num_workers=0,\n)",
        ),
        (
            "DataLoader(d, 1, None, None, None, 2, None, False, False, 0, None, 'spawn')",
            "DataLoader(d, 1, None, None, None, 0, None, False, False, 0, None, None)",
        ),
    ],
)
def test_what_contradicts_no_workers_goes(before: str, after: str) -> None:
    assert rewritten(before, {"num_workers": 0}) == after


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("DataLoader(data, **options)", r"\*\*options, which may hold num_workers; set num_workers=4 there"),
        ("DataLoader(*arguments)", r"\*arguments"),
        ("a, b = DataLoader(x), DataLoader(y)", "2 DataLoader calls"),
        ("DataLoader(x for x in y)", "generator"),
        ("DataLoader()", "no arguments"),
        ("DataLoader(data", "does not parse"),
    ],
)
def test_what_cannot_be_changed_surely_is_refused(source: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        rewritten(source, {"num_workers": 4})


def test_a_line_without_the_call_is_refused_by_what_is_there() -> None:
    with pytest.raises(RefusedError, match="line 2 has no DataLoader call; it calls MyLoader"):
        rewrite_call("x = 1\nl = MyLoader(x)\n", 2, WORKERS)


def test_persistent_workers_need_workers() -> None:
    with pytest.raises(RefusedError, match="persistent_workers needs workers"):
        rewritten("DataLoader(data)", {"persistent_workers": True})
    with pytest.raises(RefusedError, match="prefetch_factor needs workers"):
        rewritten("DataLoader(data, num_workers=0)", {"prefetch_factor": 4})


def test_the_call_is_found_by_another_name_and_from_any_of_its_lines() -> None:
    source = "from torch.utils.data import DataLoader as Feed\nl = Feed(\n    data,\n)\n"
    assert rewrite_call(source, 3, {"num_workers": 1}).endswith("    data,\n    num_workers=1,\n)\n")


def test_a_data_set_is_cached_and_stoker_imported() -> None:
    source = '"""Trains."""\n\nimport torch\n\nl = DataLoader(dataset=Data(1, 2), batch_size=4)\n'
    changed = with_import(rewritten(source, {}, wrap_data="stoker.cache"), "stoker")
    assert changed == (
        '"""Trains."""\n\nimport torch\nimport stoker\n\n'
        "l = DataLoader(dataset=stoker.cache(Data(1, 2)), batch_size=4)\n"
    )
    assert with_import(changed, "stoker") == changed


def test_a_statement_follows_the_imports() -> None:
    assert with_statement("", "import torch") == "import torch\n"
    assert with_statement("import a", "b()") == "import a\nb()\n"
    assert (
        with_statement("from a import (\n    b,\n)\nb()\n", "c()") == "from a import (\n    b,\n)\nc()\nb()\n"
    )


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "num_workers": st.integers(1, 8),
        "prefetch_factor": st.integers(1, 8),
        "persistent_workers": st.booleans(),
        "pin_memory": st.booleans(),
        "in_order": st.booleans(),
    },
)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """A DataLoader call with workers, in some layout, among other code."""
    arguments = [
        draw(st.sampled_from(["data", "(data)", "Data(1, [2, 3])", "dataset=data"])),
        *draw(
            st.permutations(
                [
                    "num_workers=3",
                    *draw(
                        st.lists(
                            st.sampled_from(
                                [
                                    "batch_size=4",
                                    "shuffle=(\n        True\n    )",
                                    "prefetch_factor=2",
                                    "persistent_workers=True",
                                    "collate_fn=lambda a, b=(1, 2): [a, b]",
                                    "pin_memory=False",
                                ]
                            ),
                            unique=True,
                        )
                    ),
                ]
            )
        ),
    ]
    between = [draw(st.sampled_from([", ", ",\n    ", ",  # why, (not)\n    "])) for _ in arguments[1:]]
    begin = draw(st.sampled_from(["", "\n    ", "  # first\n    "]))
    end = draw(st.sampled_from(["", ",", "\n", ",\n", ",  # last ),\n", "  # last\n"]))
    body = arguments[0] + "".join(a + b for a, b in zip(between, arguments[1:], strict=True))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    source = f"# ünïcode\ndata = 'é'; loader = torch.DataLoader({begin}{body}{end})  # after\nprint(loader)\n"
    return source.replace("\n", newline)


def keywords_of(source: str) -> dict[str, Any]:
    """What the call is given, with literals as values and other code as text."""
    call = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.DataLoader"
    )
    named = {keyword.arg or "**": keyword.value for keyword in call.keywords}
    named |= dict(zip(POSITIONAL, call.args, strict=False))
    return {
        name: node.value if isinstance(node, ast.Constant) else ast.unparse(node)
        for name, node in named.items()
    }


@given(calls(), SETTINGS, st.booleans())
def test_any_call_gets_the_wanted_and_keeps_the_rest(source: str, wanted: dict[str, Any], none: bool) -> None:
    gone: set[str] = set()
    if none:
        wanted = {"num_workers": 0}
        gone = {"prefetch_factor", "persistent_workers"}
    changed = rewrite_call(source, 2, wanted)
    expected = {name: value for name, value in keywords_of(source).items() if name not in gone} | wanted
    assert keywords_of(changed) == expected
    assert changed.count("\r") in {0, changed.count("\n")}
    if not none:  # a removed argument takes the comment on its line along
        assert re.findall(r"#.*", changed) == re.findall(r"#.*", source)
    assert changed.startswith(source[: source.index("\n")])
    assert changed.split("\n")[-2:] == source.split("\n")[-2:]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    return tmp_path


def applied(repository: Path, text: str) -> None:
    (repository / "fix.patch").write_bytes(text.encode())
    git(repository, "apply", "--verbose", "fix.patch")


@pytest.mark.parametrize(
    "name", ["train.py", "my train.py", "größe.py", 'odd"\\name.py', "code/deep/train.py"]
)
@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_git_applies_the_patch(repository: Path, name: str, end: str) -> None:
    path = repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    newline = end or "\n"
    lines = [
        "import torch",
        "train = DataLoader(a,",
        "    shuffle=True)",
        "x = '\x0c\u2028'",
        "",
        "val = DataLoader(b)",
    ]
    source = newline.join(lines) + end
    path.write_bytes(source.encode())
    patch = make_patch(
        [
            Edit(str(path), 2, WORKERS, is_cached=True),
            Edit(str(path), 6, {"num_workers": 1}),
            Edit(str(path), 2, {}, torch_threads=1),
        ],
        folder=repository,
    )
    assert not patch.refused
    applied(repository, patch.text)
    expected = [
        "import torch",
        "import stoker",
        "torch.set_num_threads(1)",
        "train = DataLoader(stoker.cache(a),",
        "    shuffle=True,",
        "    num_workers=4,",
        "    persistent_workers=True)",
        *lines[3:5],
        "val = DataLoader(b, num_workers=1)",
    ]
    assert path.read_bytes().decode() == newline.join(expected) + end


def test_git_applies_it_outside_a_repository_too(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("l = DataLoader(data)\n")
    patch = make_patch([Edit("code/train.py", 1, WORKERS)], folder=tmp_path)
    assert "a/code/train.py" in patch.text
    applied(tmp_path, patch.text)
    assert "num_workers=4" in (tmp_path / "code" / "train.py").read_text()


def test_what_is_refused_is_told_whole(repository: Path) -> None:
    (repository / "train.py").write_text("loader = DataLoader(data, **options)\n")
    edit = Edit("train.py", 1, {"num_workers": 0, "prefetch_factor": None}, is_cached=True)
    patch = make_patch([edit], folder=repository)
    assert patch.text == ""
    assert "(what was measured: num_workers=0, prefetch_factor=None, stoker.cache(...)" in patch.refused[0]


def test_what_is_refused_does_not_spoil_the_rest(repository: Path) -> None:
    (repository / "train.py").write_text("a = DataLoader(x, **o)\nb = DataLoader(y)\n")
    (repository / "latin.py").write_bytes(b"# \xe4\na = DataLoader(x)\n")
    patch = make_patch(
        [
            Edit("train.py", 1, WORKERS),
            Edit("train.py", 2, WORKERS),
            Edit("latin.py", 2, WORKERS),
            Edit("gone.py", 2, WORKERS),
        ],
        folder=repository,
    )
    applied(repository, patch.text)
    assert "DataLoader(y, num_workers=4" in (repository / "train.py").read_text()
    assert [reason.split(": ")[0] for reason in patch.refused] == ["train.py:1", "latin.py", "gone.py"]


def test_an_option_of_the_script_that_the_patch_overrides_is_named(repository: Path) -> None:
    source = "loader = DataLoader(data, num_workers=args.workers, pin_memory=True, batch_size=size)\n"
    (repository / "train.py").write_text(source)
    patch = make_patch([Edit("train.py", 1, {"num_workers": 4, "pin_memory": False})], folder=repository)
    assert "num_workers=4, pin_memory=False" in patch.text
    assert len(patch.replaced) == 1
    assert "train.py:1: num_workers was args.workers, which the patch replaces by 4" in patch.replaced[0]


def test_no_change_is_no_diff() -> None:
    assert diff("a\n", "a\n", "x.py") == ""
