import subprocess
import sys
from pathlib import Path

import pytest

from stoker.recipes import find

STAGES = {
    "heart-sounds": ("pretrain", "supervised", "finetune", "evaluate"),
    "emg-pose": ("train", "evaluate", "predict"),
    "cardiac-ct": ("train", "evaluate", "predict"),
    "face-parsing": ("train", "evaluate", "predict"),
    "printer-tcn": ("train", "evaluate", "predict"),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_are_those_of_the_documents(name: str) -> None:
    assert find(name).stages == STAGES[name]
    assert find(name.replace("-", "_")) == find(name)


def test_finding_recipes_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from stoker.recipes import find\n"
        f"for name in {list(STAGES)}: find(name)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "False\n"
