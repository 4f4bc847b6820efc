"""The doctor on the system's first training script: the analysis that its authors made by hand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("naive_training.py")


def test_the_doctor_finds_the_scaler_in_the_data_set(parts: Path, tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    words = ["doctor", "--steps", "24", "--warmup", "4", "--out", "report", SCRIPT.name]
    done = subprocess.run(
        [sys.executable, "-m", "stoker", *words, f"{os.path.relpath(parts, tmp_path)}/data_simulation_*"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    said = f"{report['sentence']} / {report['culprit']} / {report['stages']}"
    # stages of a step, as "loading, copy, forward, backward, optimizer"
    assert {"wait", "forward", "backward", "optimizer"} <= set(report["stages"]), said
    assert report["samples_per_s"] > 0
    # the bottleneck, by name
    assert report["verdict"] == "input-bound", said
    assert re.search(r"StandardScaler|scaler", report["culprit"]), said
    assert report["ceiling_speedup"] > 1.5, said
    # advice: scale once, keep or pack the samples
    advice = {each["key"]: each["action"] for each in report["advice"]}
    assert {"cache", "pack", "prenormalise"} <= set(advice), advice
    assert "Normalise the data once" in advice["prenormalise"]
    assert "INPUT-BOUND" in done.stdout
