"""Real signals to a real program: it ends within a step, with a checkpoint to go on from."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.train import load_checkpoint

PROGRAM = """
import sys, torch, stoker
from torch import nn

class Endless:
    def __iter__(self):
        while True:
            yield {"x": torch.ones(4, 3)}

def loss(model, batch):
    sys.stdout.write("step\\n")
    sys.stdout.flush()
    return model(batch["x"]).mean()

trainer = stoker.Trainer(nn.Linear(3, 1), loss, checkpoint_dir=sys.argv[1], device="cpu")
trainer.fit(Endless(), epochs=1)
sys.stdout.write("not reached")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_program_with_a_usable_checkpoint(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for _ in range(3):
            assert program.stdout.readline() == "step\n"
        program.send_signal(number)
        out, err = program.communicate(timeout=200)
    assert program.returncode == code
    assert "not reached" not in out
    assert "Traceback" not in err
    assert f"{number.name} ended the training after step" in err
    assert "go on with resume='auto'" in err
    assert load_checkpoint(tmp_path / "last.pt")["position"]["step"] >= 3
