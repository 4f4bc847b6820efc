import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from stoker.errors import BadSampleError, MissingExtraError, SourceError, UsageError
from stoker.store.sources import FolderSource


def write_wav(path: Path, *, value: float = 0.5, rate: int = 2000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full((100, 1), value, np.float32), rate)


def write_png(path: Path, pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def test_files_are_found_in_all_folders_and_sorted_by_their_path(tmp_path: Path) -> None:
    for name in ["b/2.wav", "b/10.wav", "a/deep/er/1.wav", "z.wav"]:
        write_wav(tmp_path / name)
    source = FolderSource(tmp_path)
    assert list(source.keys()) == ["a/deep/er/1.wav", "b/10.wav", "b/2.wav", "z.wav"]
    assert [source.key(i) for i in range(4)] == list(source.keys())
    assert source.key(-1) == "z.wav"


def test_hidden_files_and_files_of_unknown_kind_are_skipped(tmp_path: Path) -> None:
    for name in ["a.wav", ".hidden.wav", ".git/b.wav"]:
        write_wav(tmp_path / name)
    (tmp_path / "README.txt").write_text("about")
    assert list(FolderSource(tmp_path).keys()) == ["a.wav"]


def test_suffixes_are_known_in_upper_case_too(tmp_path: Path) -> None:
    write_wav(tmp_path / "A.WAV")
    assert FolderSource(tmp_path)[0]["x"].shape == (1, 100)


def test_a_pattern_chooses_files_below_the_root(tmp_path: Path) -> None:
    for name in ["train/a.wav", "train/sub/b.wav", "test/c.wav"]:
        write_wav(tmp_path / name)
    assert list(FolderSource(tmp_path, pattern="train/*").keys()) == ["train/a.wav"]
    with pytest.raises(UsageError, match="relative to the folder"):
        FolderSource(tmp_path, pattern="/train/*")


def test_folder_names_become_class_numbers_by_sorted_name(tmp_path: Path) -> None:
    for name in ["set/N/1.wav", "set/MR/1.wav", "set/MVP/1.wav"]:
        write_wav(tmp_path / name)
    source = FolderSource(tmp_path, labels="folder")
    assert source.classes == {"y": ["MR", "MVP", "N"]}
    assert [source[i]["y"] for i in range(3)] == [0, 1, 2]
    assert source[0]["y"].dtype == np.int64


def test_a_file_outside_every_class_folder_is_refused(tmp_path: Path) -> None:
    write_wav(tmp_path / "MR/1.wav")
    write_wav(tmp_path / "stray.wav")
    with pytest.raises(SourceError, match=r"'stray.wav' is in none"):
        FolderSource(tmp_path, labels="folder")


def test_an_unknown_way_to_label_is_refused(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    with pytest.raises(UsageError, match="labels must be 'folder' or None, got 'csv'"):
        FolderSource(tmp_path, labels="csv")  # type: ignore[arg-type]


def test_mixed_kinds_are_refused_with_their_counts_until_one_is_chosen(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    write_wav(tmp_path / "b.wav")
    write_png(tmp_path / "c.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(SourceError, match=r"found 2 \.wav, 1 \.png; choose with suffixes="):
        FolderSource(tmp_path)
    assert len(FolderSource(tmp_path, suffixes="wav")) == 2
    assert len(FolderSource(tmp_path, suffixes=[".PNG", "jpg"])) == 1


def test_several_suffixes_of_one_kind_are_not_a_mixture(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    soundfile.write(tmp_path / "b.flac", np.zeros(50, np.int16), 2000)
    assert len(FolderSource(tmp_path)) == 2


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    with pytest.raises(UsageError, match=r"suffixes must be among .*\.nii\.gz.*, got '\.mp3'"):
        FolderSource(tmp_path, suffixes=".mp3")
    with pytest.raises(UsageError, match="at least one"):
        FolderSource(tmp_path, suffixes=[])


def test_a_missing_folder_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "heart_sounds").mkdir()
    with pytest.raises(SourceError, match=r"no folder .*did you mean 'heart_sounds'\?"):
        FolderSource(tmp_path / "heart_sound")
    with pytest.raises(SourceError, match=r"there is no folder .* either"):
        FolderSource(tmp_path / "x" / "y")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    with pytest.raises(SourceError, match="is a file; give the folder"):
        FolderSource(tmp_path / "a.wav")


def test_a_folder_without_readable_files_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"suffix of .*\.wav; found no file at all"):
        FolderSource(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "Makefile").touch()
    with pytest.raises(SourceError, match=r"found 1 without suffix, 1 \.txt"):
        FolderSource(tmp_path)
    with pytest.raises(SourceError, match=r"suffix of \.wav; found"):
        FolderSource(tmp_path, suffixes=".wav")


def test_a_misspelt_option_names_the_nearest_one(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    with pytest.raises(UsageError, match=r"'label' for audio files; did you mean 'labels'\?"):
        FolderSource(tmp_path, label="folder")
    with pytest.raises(UsageError, match=r"'variables' .*\(there are dtype, .*labels.*\)"):
        FolderSource(tmp_path, variables=["x"])


def test_a_missing_library_is_told_when_the_source_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wav(tmp_path / "a.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stoker\[audio\]'"):
        FolderSource(tmp_path)


def test_masks_come_beside_their_images_as_stored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (6, 5, 3), np.uint8)
    classes = rng.integers(0, 19, (6, 5), np.uint8)
    write_png(tmp_path / "images" / "a.b.png", pixels)
    write_png(tmp_path / "masks" / "a.b.png", classes)
    source = FolderSource(tmp_path, pattern="images/*", masks="../masks/{stem}.png")
    np.testing.assert_array_equal(source[0]["mask"], classes)
    np.testing.assert_array_equal(source[0]["x"], pixels.transpose(2, 0, 1))
    assert source.channel_axis == {"x": 0, "mask": None}
    by_name = FolderSource(tmp_path / "images", masks="../masks/{name}")
    np.testing.assert_array_equal(by_name[0]["mask"], classes)
    absolute = FolderSource(tmp_path / "images", masks=f"{tmp_path}/masks/{{name}}")
    np.testing.assert_array_equal(absolute[0]["mask"], classes)


def test_a_missing_mask_is_a_bad_sample_and_never_background(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", np.zeros((4, 4), np.uint8))
    source = FolderSource(tmp_path, masks="masks/{stem}.png")
    with pytest.raises(BadSampleError, match=r"no such file: .*masks/a\.png") as caught:
        source[0]
    assert caught.value.key == "a.png"


def test_masks_among_the_images_are_refused(tmp_path: Path) -> None:
    for folder in ["images", "masks"]:
        write_png(tmp_path / folder / "a.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(SourceError, match=r"'masks/a.png' is both; choose .* pattern="):
        FolderSource(tmp_path, masks="../masks/{stem}.png")


def test_masks_must_differ_by_image_and_belong_to_images(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    with pytest.raises(UsageError, match=r"must contain \{stem\} or \{name\}"):
        FolderSource(tmp_path, masks="../mask.png")
    with pytest.raises(UsageError, match="masks must belong to images"):
        FolderSource(tmp_path, masks="../{stem}.png")


def test_a_file_with_a_field_named_like_the_label_is_a_bad_sample(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    np.savez(tmp_path / "a/1.npz", y=np.zeros(3))
    with pytest.raises(BadSampleError, match="a field 'y' of its own"):
        FolderSource(tmp_path, labels="folder")[0]


def test_a_sample_number_out_of_range_is_an_index_error(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    source = FolderSource(tmp_path)
    assert source[-1]["rate"] == 2000
    for access in (source.__getitem__, source.key, source.fingerprint):
        with pytest.raises(IndexError):
            access(1)


def test_a_source_works_after_pickling_and_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wav(tmp_path / "data/a/1.wav")
    monkeypatch.chdir(tmp_path)
    source = FolderSource("data", labels="folder", dtype="int16")
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(source))
    assert copy[0]["x"].dtype == np.int16
    assert copy.classes == source.classes
    assert copy.fingerprint(0) == source.fingerprint(0)


def test_the_repr_says_what_and_how_many(tmp_path: Path) -> None:
    write_wav(tmp_path / "MR/1.wav")
    write_wav(tmp_path / "MS/1.wav")
    source = FolderSource(tmp_path, labels="folder")
    assert repr(source) == f"FolderSource('{tmp_path}': 2 audio files, y one of MR, MS)"
