"""The process that a script is measured in: it ends with whoever asked for it, and quietly."""

import json
import os
import subprocess
import sys
from pathlib import Path


def run_measured(folder: Path, script: str, *, parent: int) -> "subprocess.CompletedProcess[str]":
    (folder / "train.py").write_text(script)
    request = {"target": [str(folder / "train.py")], "is_module": False, "steps": 4, "warmup": 4}
    request |= {"edits": [], "full": False, "parent": parent}
    (folder / "request.json").write_text(json.dumps(request))
    command = [sys.executable, "-m", "stoker.cli._measured", "request.json", "record.pickle"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_it_runs_nothing_for_one_that_is_dead(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    done = run_measured(tmp_path, "print('trained')", parent=gone.pid)
    assert done.returncode
    assert "trained" not in done.stdout
    assert not (tmp_path / "record.pickle").exists()


def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    script = "import os, signal\nprint('trained')\nos.kill(os.getpid(), signal.SIGINT)\n"
    done = run_measured(tmp_path, script, parent=os.getpid())
    assert "trained" in done.stdout
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
