"""``stoker doctor``, ``fix`` and ``check`` as a user meets them: scripts, exit codes, files, messages."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.cli._doctor import _share, _taken_out
from stoker.cli._main import _run, _take_debug
from stoker.errors import UsageError

Call = Callable[..., tuple[int, str, str]]

TRAIN = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset
import names

class Data(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((4,), float(i)), i % 2

def main(arguments):
    loader = DataLoader(Data(), batch_size=2)  # no workers
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if "--crash" in arguments:
            raise RuntimeError("the end of [bold]the[/] world")
    return 3

if __name__ == "__main__":
    print("script got", sys.argv[1:], names.SIBLING)
    sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "names.py").write_text("SIBLING = 'sibling'\n")
    (tmp_path / "idle.py").write_text("print('no training here')\n")
    return tmp_path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """The command in this process, which has torch already: exit code, output, errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def called(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        return _run(list(arguments), debug=False), *capfd.readouterr()

    yield called
    torch.set_num_threads(num_threads)


SHORT = ("--steps", "12", "--warmup", "4", "--out", "out")


def test_a_script_gets_its_arguments_and_the_user_a_diagnosis(folder: Path, call: Call) -> None:
    code, out, err = call("doctor", *SHORT, "train.py", "--steps", "7", "--help")
    assert code == 0, err
    assert out.startswith("script got ['--steps', '7', '--help'] sibling\n")
    assert "INPUT-BOUND" in out
    assert str(folder / "out" / "report.html") in out
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["schema_version"] == 1
    assert report["verdict"] == "input-bound"
    assert "num_workers" in report["culprit"]
    assert report["stages"]["wait"] > 0.002  # two samples of a millisecond
    for advice in report["advice"]:
        assert advice["settings"] == {} or advice["patch"].startswith("--- a/train.py\n+++ b/train.py\n")
    assert (folder / "out" / "trace.json").exists()


def test_json_alone_is_on_standard_output(call: Call) -> None:
    code, out, err = call("doctor", *SHORT, "--json", "-", "train.py")
    assert code == 0, err
    assert json.loads(out)["verdict"] == "input-bound"
    assert "script got []" in err


def test_a_module_is_run_by_name(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    code, out, err = call("doctor", *SHORT, "--json", "copy/of.json", "-m", "train", "-x")
    assert code == 0, err
    assert out.startswith("script got ['-x']")
    assert json.loads((folder / "copy" / "of.json").read_text())["run"]["command"] == ["-m", "train", "-x"]


def test_a_script_without_training_gets_a_clear_statement(call: Call) -> None:
    code, out, _ = call("doctor", *SHORT, "idle.py")
    assert code == 1
    assert "NOTHING OBSERVED" in out
    assert "no optimizer step was seen" in re.sub(r"\s+", " ", out)


def test_a_crash_is_told_with_what_was_seen(folder: Path, call: Call) -> None:
    code, out, _ = call("doctor", *SHORT, "train.py", "--crash")
    assert code == 1
    assert "the end of [bold]the[/] world" in out
    assert "the end of" in json.loads((folder / "out" / "report.json").read_text())["run"]["error"]


def test_with_full_the_exit_code_is_the_scripts(call: Call) -> None:
    code, out, err = call("doctor", "--full", "--out", "out", "train.py")
    assert code == 3, err
    assert "INPUT-BOUND" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor"], "name a training script"),
        (["doctor", "gone.py"], "there is no script gone.py"),
        (["doctor", "empty.json"], "empty.json is not Python"),
        (["doctor", "."], "is a folder without __main__.py"),
        (["doctor", "--steps", "0", "train.py"], "--steps"),
        (["doctor", "--unknown", "train.py"], "--unknown"),
        (["fix", "gone.py"], "there is no script gone.py"),
        (["check", "train.py"], "--baseline is missing"),
        (["check", "--baseline", "gone.json", "train.py"], "gone.json: No such file"),
        (["check", "--baseline", "train.py", "train.py"], "train.py is not a report"),
        (["check", "--baseline", "empty.json", "train.py"], "schema_version"),
        (["check", "--baseline", "empty.json", "--max-regress", "much", "train.py"], "got 'much'"),
    ],
)
def test_wrong_use_is_told_before_anything_runs(
    folder: Path, call: Call, arguments: list[str], message: str
) -> None:
    (folder / "empty.json").write_text("{}")
    code, out, err = call(*arguments)
    assert code == 2
    assert message in re.sub(r"\s+", " ", err)
    assert "script got" not in out
    assert "Traceback" not in err


def scaled(report: dict[str, Any], factor: float) -> str:
    times = {name: [factor * each for each in values] for name, values in report["step_times"].items()}
    return json.dumps(report | {"step_times": times, "pause_s_per_step": 0.0})


def test_a_run_is_checked_against_an_earlier_one(folder: Path, call: Call) -> None:
    code, _, err = call("doctor", *SHORT, "train.py")
    assert code == 0, err
    report = json.loads((folder / "out" / "report.json").read_text())
    (folder / "slow.json").write_text(scaled(report, 20.0))
    (folder / "fast.json").write_text(scaled(report, 0.05))
    code, out, err = call("check", *SHORT, "train.py", "--baseline", "slow.json", "--max-regress", "5%", "-x")
    assert code == 0, err
    assert "script got ['-x']" in out
    assert "OK" in out
    code, out, err = call(
        "check", *SHORT, "--baseline", "fast.json", "--json", "-", "train.py", "--baseline=9"
    )
    assert code == 1, err
    assert "script got ['--baseline=9']" in err
    result = json.loads(out)
    assert not result["ok"]
    assert result["slowdown"]["low"] > 1
    assert result["stages"]["wait"]["is_significant"]


def test_a_check_leaves_its_baseline_as_it_is(folder: Path, call: Call) -> None:
    code, _, err = call("doctor", "--steps", "8", "--warmup", "4", "train.py")
    assert code == 0, err
    baseline = folder / "stoker-report" / "report.json"
    before = baseline.read_bytes()
    call("check", "--steps", "8", "--warmup", "4", "--baseline", "stoker-report/report.json", "train.py")
    assert baseline.read_bytes() == before
    assert (folder / "stoker-check" / "report.json").exists()
    code, _, err = call("check", "--out", "stoker-report", "--baseline", str(baseline), "train.py")
    assert code == 2
    assert "would replace the baseline" in err
    assert baseline.read_bytes() == before


def test_a_run_that_crashes_does_not_pass_the_check(folder: Path, call: Call) -> None:
    call("doctor", *SHORT, "train.py")
    (folder / "out" / "report.json").rename(folder / "base.json")
    code, out, _ = call("check", *SHORT, "--baseline", "base.json", "train.py", "--crash")
    assert code == 1
    assert "the end of" in out


def test_fix_gives_workers_in_processes_of_their_own_and_a_patch_for_git(folder: Path, call: Call) -> None:
    # fetching that sleeps this long gains from workers on a machine however busy
    script = TRAIN.replace("time.sleep(0.001)", "time.sleep(0.02)")
    (folder / "train.py").write_text(script)
    code, out, err = call("fix", *SHORT, "--trials", "1", "train.py", "--patch", "faster.patch", "-x")
    assert code == 0, err
    assert err.count("script got ['-x']") == 2  # before and after
    assert "script got" not in out
    assert "tried num_workers=" in out
    assert "Before and after" in (folder / "out" / "report.html").read_text()
    assert (folder / "train.py").read_text() == script
    subprocess.run(["git", "apply", "faster.patch"], cwd=folder, check=True)
    changed = (folder / "train.py").read_text()
    assert re.search(r"DataLoader\(Data\(\), batch_size=2, num_workers=\d+.*\)  # no workers", changed)


def test_the_script_meets_nothing_of_the_commands_own_setting_up(folder: Path) -> None:
    (folder / "look.py").write_text(
        "import logging, signal, sys\n"
        "print(logging.getLogger().handlers, logging.getLogger().level)\n"
        "print(signal.getsignal(signal.SIGTERM).name)\n"
        "print(sys.argv, sys.path[0], __name__, __file__)\n"
    )
    alone, watched = (
        subprocess.run(
            [sys.executable, *command, "look.py", "--debug"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        for command in ([], ["-m", "stoker", "doctor", "--full"])
    )
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.startswith(alone.stdout)
    assert alone.stdout.startswith("[] 30\nSIG_DFL\n")


def test_debug_behind_a_script_is_the_scripts() -> None:
    assert _take_debug(["pack", "doctor", "--debug"]) == (True, ["pack", "doctor"])
    assert _take_debug(["--debug", "doctor", "train.py", "--debug"]) == (
        True,
        ["doctor", "train.py", "--debug"],
    )
    assert _take_debug(["fix", "--patch", "p", "train.py", "--debug"])[0] is False
    assert _take_debug([]) == (False, [])


def test_our_option_may_stand_behind_the_script_unless_it_stood_before() -> None:
    assert _taken_out("--patch", None, ["t.py", "--patch", "x", "-a"]) == ("x", ["t.py", "-a"])
    assert _taken_out("--patch", None, ["t.py", "--patch=x", "--patch", "y"]) == (
        "x",
        ["t.py", "--patch", "y"],
    )
    assert _taken_out("--patch", "p", ["t.py", "--patch", "x"]) == ("p", ["t.py", "--patch", "x"])
    assert _taken_out("--patch", None, ["t.py", "--", "--patch", "x"]) == (
        None,
        ["t.py", "--", "--patch", "x"],
    )
    assert _taken_out("--patch", None, None) == (None, None)
    with pytest.raises(UsageError, match="--patch needs a value"):
        _taken_out("--patch", None, ["t.py", "--patch"])


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.1", 0.1), ("0", 0.0), ("12.5%", 0.125)])
def test_a_share_is_a_percentage_or_a_number(text: str, share: float) -> None:
    assert _share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["-5%", "nan", "five", "", "1000%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 5%"):
        _share(text)
