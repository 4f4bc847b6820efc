"""The rules that keep the code's map true: who may import whom, what an ``__init__`` holds."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "stoker"
MODULES = sorted(PACKAGE.rglob("*.py"))

# data moves from left to right: a package may import what stands before it, and errors and config
ORDER = ["store", "loader", "augment", "train", "recipes", "cli"]
ALONE = {"augment", "doctor"}  # know tensors, or plain PyTorch, and nothing else of ours
EVERYWHERE = {"errors", "config", "__init__"}


def imported_packages(path: Path) -> set[str]:
    """The packages of stoker that a module imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "stoker":
                found.add(parts[1] if len(parts) > 1 else "__init__")
    return found


def allowed(package: str) -> set[str]:
    if package in {"errors", "config"}:
        return {"errors", "config"}
    if package in ALONE:
        return EVERYWHERE | {package}
    if package == "cli":
        return {*EVERYWHERE, *ORDER, "doctor"}
    return EVERYWHERE | set(ORDER[: ORDER.index(package) + 1])


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_from_its_left(path: Path) -> None:
    package = package_of(path)
    if package in {"__init__", "__main__"}:
        return
    assert imported_packages(path) <= allowed(package)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_an_init_only_re_exports_and_says_what(path: Path) -> None:
    body = ast.parse(path.read_text()).body
    kinds = [type(node) for node in body]
    assert kinds[0] is ast.Expr, "a docstring comes first"
    for node in body[1:]:
        named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        assert isinstance(node, ast.ImportFrom) or (named and node.targets[0].id == "__all__")  # type: ignore[attr-defined]


def test_no_folder_is_called_by_what_it_is_not() -> None:
    vague = {"utils", "core", "helpers", "common", "misc"}
    assert not [path for path in PACKAGE.rglob("*") if path.stem.strip("_") in vague]


def test_importing_stoker_is_light() -> None:
    code = (
        "import sys, stoker\n"
        "heavy = {'torch', 'h5py', 'numpy', 'pydantic', 'rich', 'typer', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_storing_needs_no_torch() -> None:
    code = "import sys, stoker; stoker.pack; stoker.open; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_exists() -> None:
    import stoker

    assert all(getattr(stoker, name) is not None for name in stoker.__all__)
    assert dir(stoker) == sorted(stoker.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        stoker.nothing  # noqa: B018
