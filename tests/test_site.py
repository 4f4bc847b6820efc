"""The documentation as a site."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-d", str(tmp_path / "trees")]
    places = [str(DOCS), str(tmp_path / "site")]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "tutorial", "reference/loader", "results/packing"):
        assert (tmp_path / "site" / f"{page}.html").exists()
    assert "class" in (tmp_path / "site" / "reference" / "loader.html").read_text()


def test_every_page_is_in_the_index() -> None:
    listed = (DOCS / "index.md").read_text().splitlines()
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if not page.startswith("results/")} - {*listed, "index"} == set()
