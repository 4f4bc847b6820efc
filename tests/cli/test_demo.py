"""The demo, from raw files to before and after."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_diagnoses_packs_and_shows_what_it_brought(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stoker", "demo", "--quick", "--out", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout  # 1 where a way of training did not learn
    assert "INPUT-BOUND" in done.stdout
    assert "starving.py" in done.stdout
    assert "EMULATED" in done.stdout or "GPU" in done.stdout
    rate = re.search(r"samples a second +([\d,]+) +([\d,]+) +([\d,]+)", done.stdout)
    assert rate is not None
    waits = re.search(r"accelerator waits +(\d+)% +(\d+)% +(\d+)%", done.stdout)
    assert waits is not None
    before, _, after = map(int, waits.groups())
    assert before > 40 > after
    for name in ("report/report.html", "starving.py", "pack.py", "fed.py", "recordings.stoker/manifest.json"):
        assert (tmp_path / "demo" / name).exists(), name
