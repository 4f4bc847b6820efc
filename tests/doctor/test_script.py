"""A script runs under the doctor as it does under python."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stoker.doctor import diagnose, examine
from stoker.doctor.probes._script import project_of, root_of
from stoker.errors import UsageError

REPORTS = """
import json, os, sys
import beside
class Known: pass
if __name__ == "__main__":
    main = sys.modules["__main__"]
    print(json.dumps({
        "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path[0], "folder": os.getcwd(),
        "is_main": main.Known is Known, "module": Known.__module__, "beside": beside.__file__,
        "spec": getattr(main.__spec__, "name", None), "package": __package__, "doc": __doc__,
        "loader": type(__loader__).__name__,
    }))
    sys.exit(5)
"""

RUN = "import sys; from stoker.doctor import examine; r = examine(sys.argv[2:], module=sys.argv[1] == '-m'); "


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("module", [False, True])
def test_it_sees_what_it_sees_under_python(tmp_path: Path, module: bool) -> None:
    folder = tmp_path / "package" if module else tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(REPORTS)
    (folder / "__init__.py").touch()
    (tmp_path / "beside.py" if module else folder / "beside.py").touch()
    target = ["-m", "package.train"] if module else ["scripts/train.py"]
    plain = python(tmp_path, *target, "--lr", "0.1")
    run = RUN + "sys.exit(r.exit_code)"
    watched = python(tmp_path, "-c", run, "-m" if module else "", target[-1], "--lr", "0.1")
    assert watched.returncode == plain.returncode == 5, watched.stderr
    assert json.loads(watched.stdout) == json.loads(plain.stdout)


SPAWNING = """
import os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
assert __name__ in ("__main__", "__mp_main__")
class Mine(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return torch.ones(4) * index, index % 2
def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])
if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Mine(), 4, num_workers=1, multiprocessing_context=sys.argv[1], collate_fn=collate,
                        persistent_workers=True)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(200):
        for x, y in loader:
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
"""


def test_spawned_workers_find_the_scripts_classes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWNING)
    code = RUN.replace("module=", "steps=10, warmup=4, module=") + (
        "made = [b for b in r.batches if b.worker == 0 and b.taken_s is not None]; "
        "print(r.ended, r.loaders[0].start_method, len(made) > 9, r.not_observed, r.error)"
    )
    done = python(tmp_path, "-c", code, "", "train.py", "spawn")
    expected = "stopped spawn True {'device replay': 'no batch is copied, so it would be the same'} None"
    assert done.stdout.strip() == expected, done.stderr


def test_a_crash_is_printed_as_python_prints_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("def fail():\n    raise ValueError('no such thing')\n\n\nfail()\n")
    record = examine([str(script)])
    assert capfd.readouterr().err == record.error
    assert record.error is not None
    assert record.error.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 5, in <module>',
        "    fail()",
        f'  File "{script}", line 2, in fail',
        "    raise ValueError('no such thing')",
        "ValueError: no such thing",
    ]
    (event,) = [event for event in record.events if event.kind == "crash"]
    assert event.place is not None
    assert (event.place.line, event.place.function) == (2, "fail")


def test_of_a_message_with_many_lines_the_first_is_told_and_told_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('no such thing\\n\\nSee the manual')\n")
    diagnosis = diagnose(examine([str(script)]))
    assert "crashed (ValueError: no such thing)" in diagnosis.sentence
    assert [note for note in diagnosis.notes if "crashed" in note] == [
        "The script crashed: ValueError: no such thing"
    ]


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('too bad')", 1, "too bad\n"),
        ("1 +", 1, None),
    ],
)
def test_exit_codes_are_those_of_python(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], statement: str, code: int, said: str | None
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import sys\n{statement}\n")
    record = examine([str(script)], full=True)
    assert record.exit_code == code
    err = capfd.readouterr().err
    assert err == said if said is not None else "SyntaxError" in err


def test_modules_of_one_run_are_not_found_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import settings_of_train\nsettings_of_train.seen.append(1)\n")
    (tmp_path / "settings_of_train.py").write_text("seen = []\n")
    for _ in range(2):
        assert examine([str(tmp_path / "train.py")]).error is None
        assert "settings_of_train" not in sys.modules


@pytest.mark.parametrize("module", [False, True])
def test_what_is_not_there_is_said(tmp_path: Path, module: bool) -> None:
    with pytest.raises(UsageError, match="there is no"):
        examine([str(tmp_path / "none.py") if not module else "no.such.module"], module=module)
    with pytest.raises(UsageError, match="got none"):
        examine([], module=module)
    with pytest.raises(UsageError, match="steps must be at least 1"):
        examine(["x.py"], steps=0)


def test_the_users_code_is_that_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.touch()
    assert root_of([str(script)], module=False) == str(tmp_path)
    (tmp_path / "pyproject.toml").unlink()
    alone = os.path.realpath(tmp_path / "scripts")
    assert project_of(Path(alone)) in {Path(alone), *Path(alone).parents}


def test_ctrl_c_goes_up_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, torch
            from torch.utils.data import DataLoader, TensorDataset
            for number, batch in enumerate(DataLoader(TensorDataset(torch.zeros(40, 2)), num_workers=1)):
                if number == 3:
                    os.kill(os.getpid(), signal.SIGINT)
            """
        )
    )
    with pytest.raises(KeyboardInterrupt):
        examine([str(script)])
