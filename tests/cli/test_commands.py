"""The command line as a user meets it: exit codes, messages, and in real processes signals and terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import stoker
from support.commands import Done, call, run


def write_wav(path: Path, seconds: float, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    signal_ = np.random.default_rng(seed).integers(-9999, 9999, round(seconds * 1000))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(1000)
        file.writeframes(signal_.astype("<i2").tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("abnormal", "normal"):
        for i in range(6):
            write_wav(tmp_path / "data" / kind / f"{i}.wav", 0.2 + 0.1 * i, i)
    return tmp_path


def packed(folder: Path, *extra: str) -> Done:
    return call("pack", "data", "a.stoker", "--labels", "folder", *extra, cwd=folder)


def test_samples_that_are_in_no_split_are_counted(folder: Path) -> None:
    options = ["--labels", "folder", "--split", "train=0.5,val=0.25", "--stratify", "y"]
    done = call("pack", "data", "less.stoker", *options, cwd=folder)
    splits = stoker.open(folder / "less.stoker").splits
    num_left = 12 - sum(splits.values())
    assert num_left > 0
    assert f"train {splits['train']}, val {splits['val']}, in none of them {num_left}" in done.stdout


def test_images_that_differ_in_channels_are_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "data" / "grey.png")
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "data" / "rgb.png")
    done = call("pack", "data", "a.stoker", cwd=tmp_path)
    assert "x: uint8[?, 4, 4], samples differ in their number of channels" in done.stdout
    done = call("pack", "data", "a.stoker", "--option", "channels=3", cwd=tmp_path)
    assert "differ" not in done.stdout
    assert stoker.open(tmp_path / "a.stoker").fields["x"].shape == (3, 4, 4)


def test_pack_verify_info_and_stats_agree(folder: Path) -> None:
    options = ["--labels", "folder", "--split", "train=0.5,val=0.5", "--stratify", "y"]
    done = run("pack", "data", "a.stoker", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "a.stoker: 12 samples" in done.stdout
    assert "(12 packed, 0 kept, 0 dropped)" in done.stdout
    verified = run("verify", "a.stoker", cwd=folder)
    assert verified.returncode == 0
    assert verified.stdout.startswith("ok a.stoker: 12 samples, every byte as published")
    info = json.loads(call("info", "a.stoker", "--json", cwd=folder).stdout)
    assert info["fields"] == {"x": "float32[1, ?]", "rate": "int64[]", "y": "int64[]"}
    assert info["splits"] == {"train": 6, "val": 6}
    stats = json.loads(call("stats", "a.stoker", "--json", cwd=folder).stdout)
    assert stats["classes"] == {"y": {"abnormal": 6, "normal": 6}}
    store = stoker.open(folder / "a.stoker")
    values = np.concatenate([x.ravel() for x in store.column("x")]).astype(np.float64)
    assert stats["fields"]["x"]["mean"] == pytest.approx([values.mean()])
    assert stats["fields"]["x"]["std"] == pytest.approx([values.std()])
    for command in ("info", "stats"):
        shown = call(command, "a.stoker", cwd=folder)
        assert shown.returncode == 0
        assert "abnormal" in shown.stdout


def test_a_second_pack_has_nothing_to_do(folder: Path) -> None:
    packed(folder)
    assert "(0 packed, 12 kept, 0 dropped)" in packed(folder).stdout


def test_json_output_is_one_object(folder: Path) -> None:
    report = json.loads(packed(folder, "--json").stdout)
    assert (report["num_samples"], report["num_packed"], report["skipped"]) == (12, 12, [])


def test_a_bad_file_stops_packing_with_its_name_and_exit_code_2(folder: Path) -> None:
    (folder / "data" / "normal" / "bad.wav").write_bytes(b"RIFF nonsense")
    done = packed(folder)
    assert done.returncode == 2
    assert "normal/bad.wav" in done.stderr
    assert "--on-error skip" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in packed(folder, "--debug").stderr


def test_skipped_files_are_listed_and_exit_code_is_1(folder: Path) -> None:
    (folder / "data" / "normal" / "bad.wav").write_bytes(b"RIFF nonsense")
    done = packed(folder, "--on-error", "skip")
    assert done.returncode == 1
    assert "12 samples" in done.stdout
    assert "normal/bad.wav" in done.stdout


def test_damage_is_named_with_exit_code_1_and_repaired(folder: Path) -> None:
    packed(folder, "--num-workers", "0")  # one shard, in which recordings differ in length
    (shard,) = (folder / "a.stoker" / "shards").glob("*.h5")
    with h5py.File(shard) as file:
        place = file["fields/x/values"].id.get_offset()
    data = bytearray(shard.read_bytes())
    data[place + 100] ^= 1
    shard.write_bytes(data)
    done = call("verify", "a.stoker", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.startswith("damaged a.stoker: 1 bad samples")
    report = json.loads(call("verify", "a.stoker", "--json", cwd=folder).stdout)
    (bad,) = report["bad"]
    assert bad["field"] == "x"
    assert bad["key"] in done.stdout
    mended = call("repair", "a.stoker", "--from", "data", "--labels", "folder", cwd=folder)
    assert "packed 1 samples again" in mended.stdout, mended.stderr
    assert call("verify", "a.stoker", "--quick", cwd=folder).returncode == 0


def test_compact_tells_what_it_saved(folder: Path) -> None:
    packed(folder)
    for i in range(5):
        write_wav(folder / "data" / "normal" / f"{i}.wav", 0.3, 100 + i)
    packed(folder)
    done = call("compact", "a.stoker", cwd=folder)
    assert done.returncode == 0
    assert "became 1 of" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack"], "the source is missing"),
        (["pack", "data"], "OUT, the store, is missing"),
        (["pack", "dat", "a.stoker"], "there is no file or folder 'dat'"),
        (["pack", "empty", "a.stoker"], "empty"),
        (["pack", "data", "a.stoker", "--compression", "zip"], "compression"),
        (["pack", "data", "a.stoker", "--split", "train"], "--split is NAME=FRACTION"),
        (["pack", "data", "a.stoker", "--stratify", "y"], "need --split"),
        (["pack", "data", "a.stoker", "--option", "x"], "KEY=VALUE"),
        (["pack", "data", "a.stoker", "--num-workers", "-1"], "num_workers"),
        (["pack", "data", "a.stoker", "--transform", "nowhere:f"], "cannot import 'nowhere'"),
        (["pack", "data", "a.stoker", "--transform", "json:nothing"], "has no 'nothing'"),
        (["pack", "json:dumps", "a.stoker"], "must be a path or have __len__"),
        (["pack", "data", "data"], "holds other files"),
        (["pack", "--config", "none.yaml"], "none.yaml"),
        (["verify", "nothing.stoker"], "there is no store at nothing.stoker"),
        (["verify", "data"], "a folder but not a store"),
        (["info", "nothing.stoker"], "there is no store"),
        (["repair", "nothing.stoker", "--from", "data"], "there is no store"),
        (["compact", "nothing.stoker"], "there is no store"),
        (["push", "nothing.stoker", "memory://a"], "would be gone with this command"),
        (["nonsense"], "No such command"),
        (["verify", "a.stoker", "--wrong"], "No such option"),
    ],
)
def test_wrong_use_says_what_is_wrong_with_exit_code_2(
    folder: Path, arguments: list[str], message: str
) -> None:
    (folder / "empty").mkdir()
    done = call(*arguments, cwd=folder)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "nothing.stoker").exists()


def test_settings_come_from_file_then_set_then_flags(folder: Path) -> None:
    (folder / "scaling.py").write_text(
        "class Scale:\n"
        "    def __init__(self, factor):\n"
        "        self.factor = factor\n"
        "    def __call__(self, sample):\n"
        "        return {**sample, 'x': sample['x'] * self.factor}\n"
    )
    (folder / "pack.yaml").write_text(
        "source: data\n"
        "out: from-config.stoker\n"
        "options: {labels: folder}\n"
        "transform: {name: 'scaling:Scale', parameters: {factor: 0}}\n"
        "compression: lz4\n"
        "splits: {fractions: {train: 0.75, val: 0.25}, stratify: y}\n"
    )
    done = call(
        "pack",
        "--config",
        "pack.yaml",
        "--set",
        "compression=zstd",
        "--num-workers",
        "1",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    store = stoker.open(folder / "from-config.stoker")
    assert store.manifest.compression == "zstd"
    assert store.manifest.transform.name == "scaling.Scale"
    assert store.stats["x"].max == (0.0,)
    assert set(store.splits) == {"train", "val"}
    wrong = call("pack", "--config", "pack.yaml", "--set", "compresion=zstd", cwd=folder)
    assert wrong.returncode == 2
    assert "did you mean 'compression'?" in wrong.stderr


def test_a_dataset_object_is_packed_by_name(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import numpy as np\n"
        "class Numbers:\n"
        "    def __len__(self): return 7\n"
        "    def __getitem__(self, i): return np.full(3, i), i % 2\n"
        "numbers = Numbers()\n"
    )
    for spec in ("mine:numbers", "mine:Numbers"):
        done = call("pack", spec, f"{spec[-7:]}.stoker", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert len(stoker.open(folder / f"{spec[-7:]}.stoker")) == 7


def test_version_help_and_the_exit_code_of_a_process(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout == f"stoker {stoker.__version__}\n"
    assert call("--help", cwd=tmp_path).returncode == 0
    assert run("nonsense", cwd=tmp_path).returncode == 2
    assert "Examples" in call("pack", "--help", cwd=tmp_path).stdout


def test_terminating_a_pack_keeps_what_was_finished(folder: Path) -> None:
    (folder / "endless.py").write_text(
        "import os, signal\n"
        "class Numbers:\n"
        "    def __len__(self): return 500\n"
        "    def __getitem__(self, i):\n"
        "        if i == 100:\n"
        "            os.kill(os.getppid(), signal.SIGTERM)\n"
        "        return {'x': float(i)}\n"
        "    def fingerprint(self, i): return 'same'\n"
    )
    done = run("pack", "endless:Numbers", "b.stoker", "--num-workers", "1", cwd=folder)
    assert done.returncode == 128 + signal.SIGTERM
    (folder / "endless.py").write_text((folder / "endless.py").read_text().replace("i == 100", "False"))
    again = json.loads(call("pack", "endless:Numbers", "b.stoker", "--json", cwd=folder).stdout)
    assert again["num_samples"] == 500
    assert 0 < again["num_packed"] < 500


def test_ctrl_c_says_that_what_was_finished_is_kept(folder: Path) -> None:
    (folder / "stopping.py").write_text(
        "import os, signal\n"
        "class Numbers:\n"
        "    def __len__(self): return 500\n"
        "    def __getitem__(self, i):\n"
        "        if i == 100:\n"
        "            os.kill(os.getppid(), signal.SIGINT)\n"
        "        return {'x': float(i)}\n"
    )
    done = run("pack", "stopping:Numbers", "b.stoker", "--num-workers", "1", cwd=folder)
    assert done.returncode == 128 + signal.SIGINT
    assert "what was finished is kept" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_are_shown_as_they_are(folder: Path) -> None:
    (folder / "data" / "normal").rename(folder / "data" / "[red]odd[green]")
    odd = "x [red]y[_red] [bold].stoker"
    assert call("pack", "data", odd, "--labels", "folder", cwd=folder).returncode == 0
    for command in ("verify", "info", "stats"):
        done = call(command, odd, cwd=folder)
        assert done.returncode == 0, done.stderr
    assert "[red]odd[green]" in call("stats", odd, cwd=folder).stdout


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class A:\n    def __init__(self, x): ...\n", "cannot be made"),
        ("class A(:\n", "cannot import 'broken'"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_module_of_the_users_that_fails_is_told(folder: Path, code: str, message: str) -> None:
    (folder / "broken.py").write_text(code)
    done = call("pack", "broken:A", "a.stoker", cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_leaves_a_folder_that_is_not_its_own_alone(folder: Path) -> None:
    done = call("demo", "--out", "data", cwd=folder)
    assert done.returncode == 2
    assert "choose another folder" in done.stderr
    assert (folder / "data" / "normal" / "0.wav").exists()


def test_a_damaged_manifest_is_a_problem_found(folder: Path) -> None:
    packed(folder)
    (folder / "a.stoker" / "manifest.json").write_text("{")
    done = call("verify", "a.stoker", cwd=folder)
    assert done.returncode == 1
    assert "is damaged" in done.stdout


def test_a_terminal_sees_a_progress_bar(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stoker", "pack", "data", "a.stoker"]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert process.returncode == 0
    assert b"packing" in shown
    assert b"12/12" in shown


def test_the_report_of_a_run_is_complete(folder: Path) -> None:
    packed(folder)
    report: dict[str, Any] = json.loads((folder / "a.stoker" / "statistics.json").read_text())
    assert report["schema_version"] == 1
    assert report["content_digest"] == stoker.open(folder / "a.stoker").content_digest


def test_a_damaged_manifest_is_not_said_to_be_repairable(folder: Path) -> None:
    packed(folder)
    (folder / "a.stoker" / "manifest.json").write_text("{")
    done = call("verify", "a.stoker", cwd=folder)
    assert done.returncode == 1
    assert "move it away and run `stoker pack` again" in " ".join(done.stdout.split())
    assert "stoker repair" not in done.stdout
