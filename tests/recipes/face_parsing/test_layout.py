from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.errors import BadSampleError, SourceError, UsageError
from stoker.recipes.face_parsing import CLASSES, IGNORE, PALETTE, draw_face, write_faces
from stoker.recipes.face_parsing._images import read_face
from stoker.recipes.face_parsing._layout import Face, read_faces


def write_image(path: Path, size: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size, 3), 100, np.uint8)).save(path)
    return path


def write_mask(path: Path, mask: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(mask)
    picture.putpalette(PALETTE)
    picture.save(path)
    return path


def test_folders_are_read_with_what_they_are_for(faces: Path) -> None:
    found = read_faces(faces)
    assert found.layout == "folders"
    assert not found.problems
    assert [face.part for face in found.faces] == ["train"] * 20 + ["test"] * 4
    assert all(face.mask is not None and face.mask.stem == face.image.stem for face in found.faces)
    assert len({face.key for face in found.faces}) == 24


def test_what_does_not_fit_is_listed_and_never_becomes_background(tmp_path: Path) -> None:
    nothing = np.zeros((8, 8), np.uint8)
    write_image(tmp_path / "train/images/a.jpg")
    write_mask(tmp_path / "train/masks/a.png", nothing)
    write_image(tmp_path / "train/images/a.png")
    write_image(tmp_path / "train/images/b.jpg")
    write_mask(tmp_path / "train/masks/c.png", nothing)
    write_image(tmp_path / "test_public/images/d.jpg")
    found = read_faces(tmp_path)
    assert [(face.key, face.part, face.mask is None) for face in found.faces] == [
        ("train/a", "train", False),
        ("test_public/d", "test", True),
    ]
    assert found.problems == (
        "train/images/a.png has the name of another image, but for its suffix",
        "train/images/b.jpg has no mask train/masks/b.png",
        "train/masks/c.png belongs to no image",
    )


def test_a_folder_of_images_is_to_be_predicted(tmp_path: Path) -> None:
    write_image(tmp_path / "one.jpg")
    write_image(tmp_path / "two.PNG")
    found = read_faces(tmp_path)
    assert [(face.key, face.part) for face in found.faces] == [("one", "test"), ("two", "test")]
    assert (read_face(found.faces[0], 32)["mask"] == IGNORE).all()


@pytest.mark.parametrize(
    ("below", "rule"), [("empty", "holds no face"), ("CelebA-HQ-img", "must have the masks")]
)
def test_a_folder_without_faces_is_refused(tmp_path: Path, below: str, rule: str) -> None:
    (tmp_path / below).mkdir()
    with pytest.raises(SourceError, match=rule):
        read_faces(tmp_path)
    with pytest.raises(UsageError, match="folder of faces"):
        read_faces(tmp_path / "nowhere")


def test_parts_are_painted_over_each_other_in_the_order_of_classes(tmp_path: Path) -> None:
    write_image(tmp_path / "CelebA-HQ-img/12.jpg", 16)
    folder = tmp_path / "CelebAMask-HQ-mask-anno/0"
    folder.mkdir(parents=True)
    for name, columns in {
        "hair": slice(0, 5),
        "skin": slice(0, 8),
        "l_eye": slice(2, 4),
        "cloth": slice(7, 8),
    }.items():
        part = np.zeros((8, 8, 3), np.uint8)
        part[:, columns] = 255
        Image.fromarray(part).save(folder / f"00012_{name}.png")  # in colour, as some are
    (face,) = read_faces(tmp_path).faces
    mask = read_face(face, 8)["mask"]
    hair, skin, cloth = (CLASSES.index(name) for name in ("hair", "skin", "cloth"))
    assert mask[3].tolist() == [hair] * 5 + [skin] * 2 + [cloth]


def test_the_two_layouts_of_drawn_faces_have_the_same_masks(tmp_path: Path) -> None:
    write_faces(tmp_path, num_train=3, num_test=0, size=48, layout="celebamask", seed=5)
    found = read_faces(tmp_path)
    assert found.layout == "celebamask"
    assert not found.problems
    for number, face in enumerate(found.faces):
        _, mask = draw_face(96, np.random.default_rng([5, number]))
        sample = read_face(face, 48)
        assert (sample["mask"] == mask[1::2, 1::2]).all()
        assert (sample["height"], sample["width"]) == (96, 96)


def test_celebas_own_partition_is_kept_if_it_is_there(tmp_path: Path) -> None:
    write_faces(tmp_path, num_train=4, num_test=0, size=32, layout="celebamask")
    rows = ["idx orig_idx orig_file"]
    rows += [f"{i} {n - 1} {n:06d}.jpg" for i, n in enumerate([5, 162770, 162771, 182638])]
    (tmp_path / "CelebA-HQ-to-CelebA-mapping.txt").write_text("\n".join(rows))
    assert [face.part for face in read_faces(tmp_path).faces] == ["train", "train", "val", "test"]
    (tmp_path / "CelebA-HQ-img/2.jpg").unlink()
    write_image(tmp_path / "CelebA-HQ-img/77.jpg")
    assert read_faces(tmp_path).problems == (
        "CelebA-HQ-img/77.jpg has no mask of any part",
        "masks of 00002 belong to no image",
    )


def test_bad_masks_are_named(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.png")
    cases = {
        "classes 0 to 18": write_mask(tmp_path / "b.png", np.full((8, 8), 19, np.uint8)),
        "another shape": write_mask(tmp_path / "c.png", np.zeros((8, 9), np.uint8)),
        "palette or 8-bit grey": write_image(tmp_path / "d.png"),
        "cannot be read": tmp_path / "e.png",
    }
    cases["cannot be read"].write_bytes(b"no picture")
    for rule, mask in cases.items():
        with pytest.raises(BadSampleError, match=rule):
            read_face(Face("a", "train", image, mask), 32)
