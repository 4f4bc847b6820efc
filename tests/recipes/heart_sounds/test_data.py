"""From public layouts to a store of cycles, split by patient."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker.errors import SourceError, UsageError
from stoker.recipes.heart_sounds import (
    CycleSettings,
    HeartSoundSettings,
    labelled,
    prepare,
    read_collection,
    read_cycles,
    split_patients,
    write_cinc,
    write_circor,
    write_pascal,
    write_recordings,
)
from stoker.recipes.heart_sounds._cycles import cut
from support.commands import call


@pytest.fixture(scope="module")
def circor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("circor")
    write_circor(folder, num_patients=10, seconds=4.0, seed=1)
    return folder


@pytest.fixture(scope="module")
def store(circor: Path, tmp_path_factory: pytest.TempPathFactory) -> stoker.Store:
    path = tmp_path_factory.mktemp("store") / "circor.stoker"
    prepare(circor, path, small(), workers=0)
    return stoker.open(path)


def small(**changes: object) -> HeartSoundSettings:
    return HeartSoundSettings.model_validate(
        {"cycles": {"rate": 1000, "length": 1600}, "progress": False, **changes}
    )


def test_circor_is_read_with_patients_labels_and_states(circor: Path) -> None:
    found = read_collection(circor)
    assert found.layout == "circor"
    assert not found.problems
    assert {entry.patient for entry in found.entries} == {str(50001 + i) for i in range(9)}  # one came twice
    assert all(entry.states is not None and entry.states.suffix == ".tsv" for entry in found.entries)
    with (circor / "training_data.csv").open() as file:
        murmur = {row["Patient ID"]: row["Murmur"] for row in csv.DictReader(file)}
    for entry in found.entries:
        assert found.classes["murmur"][entry.labels["murmur"]] == murmur[entry.key.split("_")[0]]


def test_what_circor_lacks_is_a_problem_with_a_name(tmp_path: Path) -> None:
    write_circor(tmp_path, num_patients=2, seconds=1.0)
    for path in (tmp_path / "training_data").glob("50001_*"):
        path.rename(path.with_name(path.name.replace("50001", "60000")))
    problems = read_collection(tmp_path).problems
    assert any("patient 50001 of training_data.csv has no recording" in each for each in problems)
    assert any("belongs to no patient" in each for each in problems)


def test_cinc_takes_labels_from_reference_and_quality_from_sqi(tmp_path: Path) -> None:
    write_cinc(tmp_path, num_recordings=16, seconds=1.0)
    found = read_collection(tmp_path)
    assert found.layout == "cinc"
    assert len(found.entries) == 16
    assert [entry.key for entry in found.entries if not entry.is_good] == [
        "training-a/a0008",
        "training-b/b0008",
    ]
    assert {entry.labels["y"] for entry in found.entries} == {0, 1}
    assert "subjects.csv" in found.notes[0]
    (tmp_path / "subjects.csv").write_text("a0001,s1\na0002,s1\n")
    patients = {entry.key: entry.patient for entry in read_collection(tmp_path).entries}
    assert patients["training-a/a0001"] == patients["training-a/a0002"] == "s1"


def test_pascal_finds_files_that_its_table_calls_otherwise(tmp_path: Path) -> None:
    write_pascal(tmp_path, num_per_class=2)
    with (tmp_path / "set_a.csv").open("a") as file:
        file.write("a,set_a/artifact__1.wav,artifact,\na,set_a/nowhere__2.wav,normal,\n")
    found = read_collection(tmp_path)
    assert found.layout == "pascal"
    assert len(found.entries) == 12
    assert sorted(entry.labels["y"] for entry in found.entries) == [0] * 4 + [1] * 4 + [2] * 4
    assert len({entry.patient for entry in found.entries}) == 12
    assert sum("does not exist" in each for each in found.problems) == 2


def test_folders_are_classes(tmp_path: Path) -> None:
    write_recordings(tmp_path, num_per_class=2)
    found = read_collection(tmp_path)
    assert found.classes["y"] == ("diastolic_murmur", "normal", "systolic_murmur")
    assert [entry.labels["y"] for entry in found.entries] == [0, 0, 1, 1, 2, 2]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither training_data\.csv"):
        read_collection(tmp_path)
    with pytest.raises(UsageError, match="is none"):
        read_collection(tmp_path / "nowhere")
    (tmp_path / "training_data.csv").write_text("Patient ID,Murmur\n1,Absent\n")
    with pytest.raises(SourceError, match="Outcome is missing"):
        read_collection(tmp_path)


def test_cycles_by_the_tsv_have_its_bounds(circor: Path) -> None:
    entry = next(each for each in read_collection(circor).entries if each.labels["murmur"] != 2)
    assert entry.states is not None
    rows = [line.split() for line in entry.states.read_text().splitlines()]
    first = next(i for i, row in enumerate(rows) if row[2] == "1" and float(row[0]) > 0)
    judged = read_cycles(entry.path, entry.states, CycleSettings(rate=1000, length=1600))
    said = [float(row[0]) for row in rows[first : first + 5]]
    assert judged.starts[0].tolist() == [round(1000 * each) for each in said]
    sample = cut(judged.signal, judged.starts[0], 1600)
    assert sample["x"].shape == (1, 1600)
    end = int(sample["bounds"][-1])
    assert not sample["x"][0, end:].any()
    np.testing.assert_array_equal(sample["x"][0, :end], judged.signal[judged.starts[0][0] :][:end])


def test_padding_is_refused_and_a_quiet_diastole_is_not(tmp_path: Path) -> None:
    import soundfile

    from stoker.recipes.heart_sounds import synthesize

    rng = np.random.default_rng(0)
    recording = synthesize("normal", seconds=6.0, rng=rng, snr_db=60.0, beats_per_minute=60)
    settings = CycleSettings(rate=1000, length=1600)
    soundfile.write(tmp_path / "quiet.wav", recording.signal, recording.rate)
    edges = recording.truth.cycles()
    states = tmp_path / "truth.tsv"
    times = recording.truth.starts_s
    lines = zip(times[:-1], times[1:], recording.truth.states, strict=True)
    states.write_text("".join(f"{a:.6f}\t{b:.6f}\t{state}\n" for a, b, state in lines))
    quiet = read_cycles(tmp_path / "quiet.wav", states, settings)
    assert len(quiet.starts) == len(edges)
    assert not quiet.refused
    lost = recording.signal.copy()
    lost[round(edges[1, 0] * recording.rate) : round(edges[1, 4] * recording.rate)] = 0
    soundfile.write(tmp_path / "lost.wav", lost, recording.rate)
    assert sum(read_cycles(tmp_path / "lost.wav", states, settings).refused.values()) == 1


def test_a_store_holds_cycles_of_whole_patients(store: stoker.Store) -> None:
    assert {"x", "bounds", "murmur", "outcome", "patient", "recording", "recording_id", "cycle"} == set(
        store.fields
    )
    assert store.fields["x"].shape == (1, 1600)
    parts = [set(store.split(name).column("patient")) for name in ("train", "val", "test")]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    bounds = np.asarray(store.column("bounds"))
    assert (np.diff(bounds, axis=1) >= 0).all()
    numbers = dict(zip(store.column("recording"), store.column("recording_id"), strict=True))
    assert len(set(numbers.values())) == len(numbers)
    assert min(numbers.values()) >= 0


def test_packing_again_reads_nothing_again(circor: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.stoker"
    first = prepare(circor, path, small(), workers=0)
    digest = stoker.open(path).content_digest
    assert (tmp_path / "a.stoker.cycles.json").is_file()
    again = prepare(circor, path, small(), workers=0)
    assert again.num_samples == first.num_samples
    assert stoker.open(path).content_digest == digest
    other = prepare(circor, path, small(cycles={"rate": 1000, "length": 1200}), workers=0)
    assert other.num_samples == first.num_samples
    assert stoker.open(path).fields["x"].shape == (1, 1200)


def test_the_command_validates_packs_and_counts(circor: Path, tmp_path: Path) -> None:
    words: list[str | Path] = [
        "pack",
        "--recipe",
        "heart-sounds",
        circor,
        tmp_path / "a.stoker",
        "--num-workers",
        "0",
    ]
    options = ["--set", "cycles.rate=1000", "--set", "cycles.length=1600", "--set", "progress=false"]
    judged = call(*words, *options, "--validate-only", "--json", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    found = json.loads(judged.stdout)
    assert found["path"] is None
    assert not list(tmp_path.iterdir())
    packed = call(*words, *options, "--stats", cwd=tmp_path)
    assert packed.returncode == 0, packed.stderr
    assert f"{found['num_samples']} samples" in packed.stdout
    assert len(stoker.open(tmp_path / "a.stoker")) == found["num_samples"] == found["counts"]["cycles kept"]


def test_a_recording_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    write_recordings(tmp_path / "data", num_per_class=2)
    (tmp_path / "data" / "normal" / "0000.wav").write_bytes(b"RIFF")
    found = prepare(tmp_path / "data", tmp_path / "a.stoker", small(), workers=0)
    assert any(each.startswith("normal/0000 cannot be read") for each in found.problems)
    assert "normal/0000" not in set(stoker.open(tmp_path / "a.stoker").column("recording"))


def test_a_split_by_seed_keeps_shares_of_every_label_and_patients_whole() -> None:
    patients = [f"p{i // 3}" for i in range(300)]
    labels = np.array([0 if i // 3 < 80 else 1 for i in range(300)])
    fractions = {"train": 0.5, "val": 0.25, "test": 0.25}
    place = split_patients(patients, labels, fractions, 0)
    for label, total in ((0, 240), (1, 60)):
        counts = np.bincount(place[labels == label], minlength=3)
        assert counts.tolist() == [total // 2, total // 4, total // 4]
    assert all(len(set(place[3 * i : 3 * i + 3])) == 1 for i in range(100))
    assert (split_patients(patients, labels, fractions, 1) != place).any()
    np.testing.assert_array_equal(split_patients(patients, labels, fractions, 0), place)


def test_a_fraction_of_labels_is_one_of_patients(store: stoker.Store) -> None:
    everyone = labelled(store, "outcome")
    some = labelled(store, "outcome", fraction=0.5, seed=3)
    whose = set(some.column("patient"))
    assert len(whose) < len(set(everyone.column("patient")))
    assert len(some) == sum(patient in whose for patient in everyone.column("patient"))
    assert set(np.asarray(some.column("outcome"))) == set(np.asarray(everyone.column("outcome")))
