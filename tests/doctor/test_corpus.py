"""Scripts whose true cause is known by construction: the doctor must find it, and measure it right."""

import ast
import json
import os
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doctor.scripts.truth import TRUTHS, Truth

SCRIPTS = Path(__file__).parent / "scripts"
NUM_CORES = 2  # what the truths are written for
NUM_WARMUP = 5
_NEAR, _ALLOWANCE_S = 0.05, 0.0015  # the allowance is for what surrounds a sleep: operators, a loss

pytestmark = pytest.mark.corpus


@dataclass(frozen=True)
class Slept:
    """How long the emulated accelerator really took."""

    stages: dict[str, tuple[float, float]]  # seconds a batch: what a typical one took, from and to
    late_s: float  # how much later than it meant to a sleeper wakes here, on average


def _take_two_cores() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])


def examined(truth: Truth, folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The report on a script, from the command as a user runs it."""
    file = folder / "copy.json"
    counts = ["--steps", str(truth.num_steps), "--warmup", str(NUM_WARMUP)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "stoker",
            "doctor",
            *counts,
            "--out",
            str(folder),
            "--json",
            str(file),
            truth.script,
        ],
        cwd=SCRIPTS,
        env=os.environ | {"EMULATED_LOG": str(folder / "slept"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        preexec_fn=_take_two_cores,
    )
    assert file.exists(), done.stderr
    return done, json.loads(file.read_text())


def slept(file: Path, truth: Truth) -> Slept:
    taken: dict[str, list[float]] = {"forward": [], "backward": []}
    late = []
    for line in file.read_text().splitlines():
        stage, meant, took = line.split()
        taken[stage].append(float(took))
        late.append(float(took) - float(meant))
    first, last = (truth.batches_per_step * steps for steps in (NUM_WARMUP, NUM_WARMUP + truth.num_steps))
    ranges = {}
    for stage, times in taken.items():
        low, _, high = statistics.quantiles(times[first:last], n=4)
        ranges[stage] = (low, max(high, statistics.fmean(times[first:last])))
    return Slept(ranges, statistics.fmean(late))


def assert_stages_are_true(truth: Truth, stages: dict[str, float], really: Slept) -> None:
    for stage, meant_ms in truth.stages_ms.items():
        if stage == "wait":
            low, high = meant_ms / 1000, meant_ms / 1000 + 2 * truth.sleeps_per_step * really.late_s
        else:
            low, high = (truth.batches_per_step * seconds for seconds in really.stages[stage])
        high += _ALLOWANCE_S * truth.batches_per_step
        assert low * (1 - _NEAR) <= stages[stage] <= high * (1 + _NEAR), stage


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.script)
def test_the_cause_is_found(truth: Truth, tmp_path: Path) -> None:
    done, report = examined(truth, tmp_path)
    said = f"{report['sentence']} / culprit {report['culprit']!r} / {report['stages']}\n{done.stderr}"
    assert done.returncode == truth.exit_code, said
    assert report["verdict"] == truth.verdict, said
    assert re.search(truth.culprit, report["culprit"], re.IGNORECASE), said
    if truth.stages_ms:
        assert_stages_are_true(truth, report["stages"], slept(tmp_path / "slept", truth))
    if truth.leaves_alone:
        # where others use the cores, passing a batch between processes takes its time, and is worth saving
        limit = 1.05 if os.getloadavg()[0] < NUM_CORES else 1.4
        applicable = [advice for advice in report["advice"] if advice["settings"]]
        assert all(advice["predicted_speedup"] <= limit for advice in applicable), said


def test_every_script_has_a_truth() -> None:
    scripts = {path.name for path in SCRIPTS.glob("*.py")} - {"emulated.py", "truth.py"}
    assert scripts == {truth.script for truth in TRUTHS}


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.name)
def test_no_script_knows_of_stoker(path: Path) -> None:
    assert "stoker" not in path.read_text().lower()


def test_the_docs_list_the_scripts() -> None:
    rows = ["| script | what is wrong | verdict |", "|---|---|---|"]
    for truth in TRUTHS:
        said = ast.get_docstring(ast.parse((SCRIPTS / truth.script).read_text())) or ""
        rows.append(f"| `{truth.script}` | {said} | {truth.verdict} |")
    text = (SCRIPTS.parents[2] / "docs" / "doctor.md").read_text()
    found = re.search(r"<!-- corpus -->\n(.*?)\n?<!-- /corpus -->", text, re.DOTALL)
    assert found is not None
    expected = "\n".join(rows)
    assert found[1] == expected, f"docs/doctor.md must have this table:\n{expected}"
