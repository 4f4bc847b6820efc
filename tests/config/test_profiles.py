"""Profiles: each is valid, each loses to the file and --set, and auto follows from the machine."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.config import Facts, TrainSettings, dump, load, profile_names, profile_path, resolve_training
from stoker.config._auto import as_data, decide
from stoker.config._profiles import merged
from stoker.errors import ConfigError, UsageError

RUN = """
data:
  train: {store: beats.stoker, split: train}
  val: {store: beats.stoker, split: val}
model: {name: "nets:small"}
task: {name: classification, arguments: {num_classes: 2}}
"""
PROFILES = profile_names()
GIB = 1 << 30


def facts(
    *,
    cores: int = 8,
    memory: int = 64 * GIB,
    device: str = "cuda",
    on_device: int = 24 * GIB,
    data: int = GIB,
) -> Facts:
    return Facts(cores, memory, device, on_device, data, compressed=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_valid_documented_file(name: str, run: Path) -> None:
    text = profile_path(name).read_text()
    assert text.startswith(f"# {name}: ")
    found = resolve_training(run, profile=name, find_facts=lambda _: facts())
    assert f"profile {name}" in found.origins.values()


def test_the_file_wins_over_the_profile_and_set_over_both(run: Path) -> None:
    run.write_text(RUN + "epochs: 7\nbatch_size: 8\n")
    found = resolve_training(run, profile="low_memory", overrides=["batch_size=4", "optimizer.lr=0.5"])
    assert (found.settings.batch_size, found.settings.epochs, found.settings.accumulate) == (4, 7, 4)
    assert found.settings.optimizer.lr == 0.5
    assert found.origins["batch_size"] == found.origins["optimizer.lr"] == "--set"
    assert found.origins["epochs"] == found.origins["data.train.store"] == "file"
    assert found.origins["accumulate"] == found.origins["data.loader.num_workers"] == "profile low_memory"
    assert found.origins["seed"] == "default"


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_shown_loads_back_equal(name: str, run: Path, tmp_path: Path) -> None:
    run.write_text(
        RUN
        + "augment: {roles: {x: signal}, transforms: [signal.TimeShift: {shift: 0.1}]}\n"
        + "checkpoint_dir: 'out: #1'\nlog: [jsonl, csv]\n"
    )
    found = resolve_training(run, profile=name, overrides=["log.1=jsonl"], find_facts=lambda _: facts())
    assert "# --set" in next(line for line in found.to_yaml().splitlines() if line.startswith("log:"))
    (tmp_path / "shown.yaml").write_text(found.to_yaml())
    assert load(TrainSettings, tmp_path / "shown.yaml") == found.settings
    dump(found.settings, tmp_path / "dumped.json")
    assert load(TrainSettings, tmp_path / "dumped.json") == found.settings


def test_a_profile_may_be_a_file_over_the_default_one(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("data: {loader: {num_workers: 3}}\nepochs: 5\n")
    run.write_text(RUN + "epochs: 7\n")
    found = resolve_training(run, profile=str(mine))
    usual = resolve_training(run)
    assert found.settings.data.loader.num_workers == 3
    assert found.origins["data.loader.num_workers"] == f"profile {mine}"
    assert (found.settings.epochs, found.origins["epochs"]) == (7, "file")
    assert found.origins["clip_norm"] == "profile default"
    loader = found.settings.data.loader.model_copy(update={"num_workers": None})
    data = found.settings.data.model_copy(update={"loader": loader})
    assert found.settings.model_copy(update={"data": data}) == usual.settings
    (tmp_path / "shown.yaml").write_text(found.to_yaml())
    assert load(TrainSettings, tmp_path / "shown.yaml") == found.settings


def test_a_mistake_in_a_profile_of_ones_own_is_said_of_it(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("data: {loader: {num_wokers: 3}}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: unknown key .* did you mean"):
        resolve_training(run, profile=str(mine))
    with pytest.raises(ConfigError, match=r"none\.yaml: the settings file must exist"):
        resolve_training(run, profile=str(tmp_path / "none.yaml"))


def test_low_memory_makes_the_same_update_in_smaller_pieces(run: Path) -> None:
    usual, small = (resolve_training(run, profile=name).settings for name in ("default", "low_memory"))
    assert isinstance(usual.batch_size, int)
    assert isinstance(small.batch_size, int)
    assert usual.batch_size * usual.accumulate == small.batch_size * small.accumulate
    assert small.batch_size < usual.batch_size


def test_an_unknown_profile_or_key_is_answered_with_the_nearest(run: Path) -> None:
    with pytest.raises(UsageError, match="got 'low-memry'; did you mean 'low_memory'"):
        resolve_training(run, profile="low-memry")
    run.write_text(RUN + "optimiser: {lr: 1}\n")
    with pytest.raises(ConfigError, match=r"run\.yaml: unknown key 'optimiser'; did you mean 'optimizer'"):
        resolve_training(run)
    run.write_text(RUN)
    with pytest.raises(
        ConfigError, match=r"--set data\.loader\.preloaded=1: .* did you mean 'data\.loader\.preload'"
    ):
        resolve_training(run, overrides=["data.loader.preloaded=1"])
    with pytest.raises(ConfigError, match=r"'model\.name' is refused: a model is named 'module:callable'"):
        resolve_training(run, overrides=["model.name=nets"])


def test_the_configuration_in_the_docs_is_valid_and_leaves_no_key_out(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuring.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "run.yaml").write_text(block)
    found = resolve_training(tmp_path / "run.yaml")
    assert set(found.origins.values()) == {"file"}


def test_what_a_file_must_hold_is_said_of_the_file(run: Path) -> None:
    run.write_text("epochs: 3\n")
    with pytest.raises(ConfigError) as error:
        resolve_training(run)
    for key in ("data", "model", "task"):
        assert f"run.yaml: '{key}' is required" in str(error.value)


def test_auto_says_what_it_decided_unless_it_was_overruled(run: Path) -> None:
    run.write_text(RUN + "accumulate: 2\n")
    asked: list[TrainSettings] = []

    def find_facts(settings: TrainSettings) -> Facts:
        asked.append(settings)
        return facts(data=100 * GIB, memory=10 * GIB)

    found = resolve_training(
        run, profile="auto", overrides=["data.loader.num_workers=1"], find_facts=find_facts
    )
    assert asked[0].data.train.split == "train"
    decided = {".".join(each.path): each for each in found.decisions}
    assert "accumulate" not in decided
    assert "data.loader.num_workers" not in decided
    assert found.settings.data.loader.shuffle == "quasi"
    assert (
        "100.0 GiB of data is more than half of 10.0 GiB available" in decided["data.loader.preload"].reason
    )
    assert found.origins["data.loader.shuffle"] == "profile auto"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts(), {"batch_size": 64, "accumulate": 1, "compile": "auto"}),
        (facts(on_device=4 * GIB), {"batch_size": 16, "accumulate": 4}),
        (facts(device="cpu", cores=2), {"compile": "off"}),
    ],
)
def test_auto_follows_from_the_machine(given: Facts, expected: dict[str, object]) -> None:
    assert as_data(decide(given)).items() >= expected.items()


@pytest.mark.parametrize(
    ("given", "preload", "shuffle"),
    [
        (facts(data=GIB), True, True),
        (facts(data=40 * GIB), False, True),
        (facts(data=65 * GIB), False, "quasi"),
    ],
)
def test_auto_reads_as_the_data_fits(given: Facts, preload: bool, shuffle: object) -> None:
    loader = as_data(decide(given))["data"]["loader"]
    assert (loader["preload"], loader["shuffle"]) == (preload, shuffle)


@given(
    st.builds(
        Facts,
        cores=st.integers(1, 256),
        memory_bytes=st.integers(0, 1 << 42),
        device=st.sampled_from(["cpu", "cuda"]),
        device_memory_bytes=st.integers(0, 1 << 38),
        data_bytes=st.integers(0, 1 << 50),
        compressed=st.booleans(),
    )
)
def test_auto_is_valid_on_any_machine_and_never_changes_the_update(given_facts: Facts) -> None:
    data = as_data(decide(given_facts))
    assert data["batch_size"] * data["accumulate"] == 64
    whole = {
        "data": {"train": {"store": "a"}},
        "model": {"name": "a:b"},
        "task": {"name": "regression"},
    }
    settings = TrainSettings.model_validate(merged(whole, data))
    assert settings.data.loader.num_workers is not None
    assert 1 <= settings.data.loader.num_workers <= given_facts.cores
    assert all(each.reason for each in decide(given_facts))


def test_windows_are_read_where_they_lie() -> None:
    usual = as_data(decide(facts()))["data"]["loader"]
    cut = as_data(decide(replace(facts(), windows=True, compressed=True)))["data"]["loader"]
    assert (usual["preload"], cut["preload"]) == (True, False)
    assert "cache" not in cut


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "data.train={split: train}",
            "'data.train' is refused: a part of the data must be either a store or files",
        ),
        ("data.train.files=a.h5", "must be either a store or files, got both"),
        (
            "data.train={files: a.h5}",
            "'data' is refused: files are sessions to cut windows from, got no windows",
        ),
        ("data.train={files: a.h5, split: train}", "files have no splits, got 'train'"),
        ("data.windows={stride: 10}", "'data.windows.length' is required"),
        ("data.windows={length: 0}", "'data.windows.length' must be greater than or equal to 1"),
        ("data.windows={length: 10, padding: [1]}", "'data.windows.padding.1' is required"),
        ("data.loader={balance: y, weights: w}", "'data.loader' is refused: samples are drawn by balance or"),
    ],
)
def test_parts_and_windows_that_cannot_be_are_named(run: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_training(run, overrides=[change])
    assert message in str(raised.value)
