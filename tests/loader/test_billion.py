import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from support import billion


def test_a_billion_samples_are_shuffled_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "billion.stoker"
    billion.write(path)
    command = [sys.executable, "-m", "support.billion", str(path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["grown"] < 50 << 20  # a byte a sample would be 1000 MB
    assert len(set(found["seen"])) == 12 * 256
    parts = np.histogram(found["seen"], 10, (0, billion.NUM_SAMPLES))[0]
    assert (abs(parts - 307) < 110).all()  # from everywhere alike: 6.6 standard deviations
