import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from stoker.errors import BadSampleError, UsageError
from stoker.store.sources import FolderSource


@pytest.fixture
def sound() -> NDArray[np.int16]:
    """[T, C]."""
    return np.random.default_rng(0).integers(-20000, 20000, (500, 2), np.int16)


def write_wav(path: Path, sound: NDArray[np.int16]) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(sound.shape[1])
        file.setsampwidth(2)
        file.setframerate(4000)
        file.writeframes(sound.astype("<i2").tobytes())


def test_sound_is_channels_by_time_with_its_rate(tmp_path: Path, sound: NDArray[np.int16]) -> None:
    write_wav(tmp_path / "a.wav", sound)
    soundfile.write(tmp_path / "b.flac", sound, 4000)
    source = FolderSource(tmp_path)
    for sample in (source[0], source[1]):
        np.testing.assert_array_equal(sample["x"], sound.T / np.float32(32768))
        assert sample["x"].dtype == np.float32
        assert sample["x"].flags.c_contiguous
        assert sample["rate"] == 4000
        assert sample["rate"].dtype == np.int64
    assert source.channel_axis == {"x": 0}


def test_int16_gives_the_stored_numbers(tmp_path: Path, sound: NDArray[np.int16]) -> None:
    write_wav(tmp_path / "a.wav", sound)
    sample = FolderSource(tmp_path, dtype="int16")[0]
    np.testing.assert_array_equal(sample["x"], sound.T)
    assert sample["x"].dtype == np.int16


@pytest.mark.parametrize("subtype", ["FLOAT", "PCM_24"])
def test_int16_refuses_sound_that_it_cannot_hold(tmp_path: Path, subtype: str) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(100, 0.1), 4000, subtype=subtype)
    with pytest.raises(BadSampleError, match=f"cannot hold sound stored as {subtype}"):
        FolderSource(tmp_path, dtype="int16")[0]
    np.testing.assert_allclose(FolderSource(tmp_path)[0]["x"], 0.1, atol=1e-6)


def test_another_dtype_is_refused(tmp_path: Path, sound: NDArray[np.int16]) -> None:
    write_wav(tmp_path / "a.wav", sound)
    with pytest.raises(UsageError, match="must be 'float32' or 'int16', got 'float64'"):
        FolderSource(tmp_path, dtype="float64")


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
@pytest.mark.parametrize("num_lost", [1, 3, 500])
def test_a_cut_off_wav_file_is_noticed(tmp_path: Path, subtype: str, num_lost: int) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full(500, 0.1), 4000, subtype=subtype)
    path.write_bytes(path.read_bytes()[:-num_lost])
    with pytest.raises(BadSampleError, match=r"cut off: \d+ of \d+ bytes"):
        FolderSource(tmp_path)[0]


@pytest.mark.parametrize("promised", [0xFFFF_FFFF, 0x7FFF_FFFF])
def test_a_wav_file_from_a_pipe_is_read_to_its_end(
    tmp_path: Path, sound: NDArray[np.int16], promised: int
) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, sound)
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = struct.pack("<I", promised)
    path.write_bytes(content)
    np.testing.assert_array_equal(FolderSource(tmp_path, dtype="int16")[0]["x"], sound.T)


def test_a_cut_off_flac_file_is_noticed(tmp_path: Path, sound: NDArray[np.int16]) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, sound, 4000)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadSampleError, match=r"not a readable flac file: .*flac"):
        FolderSource(tmp_path)[0]


def test_an_8_bit_wav_file_fits_int16(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.linspace(-1, 1, 50), 4000, subtype="PCM_U8")
    sample: dict[str, Any] = FolderSource(tmp_path, dtype="int16")[0]
    assert sample["x"].dtype == np.int16
    assert abs(sample["x"]).max() > 30000
