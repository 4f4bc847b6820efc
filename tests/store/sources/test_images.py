from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import stoker
from stoker.errors import BadSampleError, UsageError
from stoker.store.sources import FolderSource


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    """[H, W, C]."""
    return np.random.default_rng(0).integers(0, 255, (6, 5, 3), np.uint8)


def read(folder: Path) -> NDArray[np.uint8]:
    x: NDArray[np.uint8] = FolderSource(folder)[0]["x"]
    assert x.dtype == np.uint8
    assert x.flags.c_contiguous
    return x


def test_a_colour_image_is_channels_first(tmp_path: Path, pixels: NDArray[np.uint8]) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path), pixels.transpose(2, 0, 1))
    assert FolderSource(tmp_path).channel_axis == {"x": 0}


def test_a_grey_image_keeps_one_channel(tmp_path: Path, pixels: NDArray[np.uint8]) -> None:
    Image.fromarray(pixels[..., 0]).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path), pixels[np.newaxis, ..., 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_all_images_get_the_channels_that_are_asked_for(
    tmp_path: Path, pixels: NDArray[np.uint8], channels: int
) -> None:
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    Image.fromarray(pixels).save(tmp_path / "rgb.png")
    source = FolderSource(tmp_path, channels=channels)
    grey, colour = (source[i]["x"] for i in range(2))
    assert grey.shape == colour.shape == (channels, 6, 5)
    np.testing.assert_array_equal(grey[-1], pixels[..., 0])
    as_grey = np.array(Image.fromarray(pixels).convert("L"))[np.newaxis]
    np.testing.assert_array_equal(colour, as_grey if channels == 1 else pixels.transpose(2, 0, 1))


def test_other_numbers_of_channels_are_refused(tmp_path: Path, pixels: NDArray[np.uint8]) -> None:
    Image.fromarray(pixels).save(tmp_path / "rgb.png")
    with pytest.raises(UsageError, match=r"channels of images must be 1 \(grey\) or 3 \(RGB\), got 4"):
        FolderSource(tmp_path, channels=4)


def test_a_store_packed_with_other_channels_is_packed_again(
    tmp_path: Path, pixels: NDArray[np.uint8]
) -> None:
    (tmp_path / "raw").mkdir()
    Image.fromarray(pixels[..., 0]).save(tmp_path / "raw" / "grey.png")
    first = stoker.pack(FolderSource(tmp_path / "raw"), tmp_path / "a.stoker", workers=0, progress=False)
    assert first.fields["x"].shape == (1, 6, 5)
    again = stoker.pack(
        FolderSource(tmp_path / "raw", channels=3), tmp_path / "a.stoker", workers=0, progress=False
    )
    assert again.fields["x"].shape == (3, 6, 5)


def test_a_black_and_white_image_is_0_and_255(tmp_path: Path) -> None:
    Image.fromarray(np.eye(4, dtype=bool)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path), 255 * np.eye(4, dtype=np.uint8)[np.newaxis])


def test_a_palette_image_becomes_its_colours(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), mode=None).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path)[:, 0], [[10, 40], [20, 50], [30, 60]])


def test_transparency_is_dropped(tmp_path: Path, pixels: NDArray[np.uint8]) -> None:
    alpha = np.full((6, 5, 1), 7, np.uint8)
    Image.fromarray(np.concatenate([pixels, alpha], axis=2)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg"])
def test_a_jpeg_image_is_decoded(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(np.full((16, 8, 3), 100, np.uint8)).save(tmp_path / f"a{suffix}")
    x = read(tmp_path)
    assert x.shape == (3, 16, 8)
    assert abs(x.astype(int) - 100).max() <= 1


def test_an_image_of_16_bits_is_refused_instead_of_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 1000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(BadSampleError, match=r"must have 8 bits a channel.*'I;16'"):
        FolderSource(tmp_path)[0]


def test_a_grey_image_with_transparency_is_grey(tmp_path: Path) -> None:
    Image.new("LA", (3, 2), (9, 100)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read(tmp_path), np.full((1, 2, 3), 9))


def with_mask(folder: Path, mask: Image.Image) -> FolderSource:
    (folder / "m").mkdir()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(folder / "a.png")
    mask.save(folder / "m" / "a.png")
    return FolderSource(folder, pattern="*", masks="m/{stem}.png")


def test_a_palette_mask_gives_the_index_and_not_the_colour(tmp_path: Path) -> None:
    classes = np.array([[0, 1], [18, 255]], np.uint8)
    mask = Image.fromarray(classes).convert("P")
    mask.putpalette(list(range(255, -1, -1)) * 3)
    mask.putdata(classes.ravel().tolist())
    sample = with_mask(tmp_path, mask)[0]
    np.testing.assert_array_equal(sample["mask"], classes)
    assert sample["mask"].dtype == np.uint8


def test_a_black_and_white_mask_is_0_and_1(tmp_path: Path) -> None:
    source = with_mask(tmp_path, Image.fromarray(np.eye(2, dtype=bool)))
    np.testing.assert_array_equal(source[0]["mask"], np.eye(2))


def test_a_broken_mask_is_called_one(tmp_path: Path) -> None:
    source = with_mask(tmp_path, Image.fromarray(np.zeros((2, 2), np.uint8)))
    (tmp_path / "m/a.png").write_bytes(b"no picture")
    with pytest.raises(BadSampleError, match="not a readable png mask: "):
        source[0]


def test_a_colour_mask_is_refused(tmp_path: Path) -> None:
    source = with_mask(tmp_path, Image.fromarray(np.zeros((2, 2, 3), np.uint8)))
    with pytest.raises(BadSampleError, match=r"mask 'a.png' must be a palette or 8-bit grey.*'RGB'"):
        source[0]
