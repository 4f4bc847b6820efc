"""Faces and their masks as they lie in folders.

folders:     train/images/NAME.jpg, train/masks/NAME.png: the palette index (or grey value) is the class
             val/images, val/masks, if there are; test/images (or test_public/images), with or without masks
celebamask:  CelebA-HQ-img/7.jpg, CelebAMask-HQ-mask-anno/0/00007_hair.png, a binary mask for each part
             CelebA-HQ-to-CelebA-mapping.txt, if it is there, says who is for what: CelebA's own partition
plain:       images only, in the folder or in images/: to be predicted
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import SourceError, UsageError
from stoker.recipes.face_parsing._classes import CLASSES

PARTS = ("train", "val", "test")
_FOLDERS = {"train": "train", "val": "val", "test": "test", "test_public": "test"}  # and what each is for
_IMAGES, _ANNOTATIONS = "CelebA-HQ-img", "CelebAMask-HQ-mask-anno"
_MAPPING = "CelebA-HQ-to-CelebA-mapping.txt"
_FIRST_VAL, _FIRST_TEST = 162_771, 182_638  # numbers of files in CelebA's partition
_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Face:
    """One image, and where its mask is.

    With `classes`, `mask` is a folder with a binary mask for each of these, to be painted over each
    other in this order; else it is the file of the whole mask, or None where there is none.
    """

    key: str
    part: str  # one of PARTS; of those for training, some are kept for validation later
    image: Path
    mask: Path | None = None
    classes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The file's name without suffix."""
        return self.image.stem

    def mask_files(self) -> list[tuple[int | None, Path]]:
        """Each file of the mask and its class, None for the file of all classes."""
        if self.mask is None:
            return []
        if not self.classes:
            return [(None, self.mask)]
        return [(each, self.mask / f"{int(self.name):05d}_{CLASSES[each]}.png") for each in self.classes]


@dataclass(frozen=True)
class Listing:
    """What a folder holds."""

    layout: str
    faces: tuple[Face, ...]
    problems: tuple[str, ...]  # images that cannot be used, masks that belong to none


def read_faces(folder: Path) -> Listing:
    """The faces of a folder in one of the layouts; nothing is decoded.

    An image for training or validation without a mask is a problem, never a face of background.

    Raises:
        UsageError: there is no such folder.
        SourceError: it holds no face in any of the layouts.
    """
    if not folder.is_dir():
        raise UsageError(f"the data must be a folder of faces, and {folder} is none")
    if (folder / _IMAGES).is_dir():
        layout, found = "celebamask", _celebamask(folder)
    elif any((folder / name / "images").is_dir() for name in _FOLDERS):
        layout, found = "folders", _folders(folder)
    else:
        layout, found = "plain", _plain(folder)
    faces: list[Face] = []
    problems: list[str] = []
    for each in found:
        if isinstance(each, Face):
            faces.append(each)
        else:
            problems.append(each)
    if not faces:
        why = f": {problems[0]}" if problems else ""
        raise SourceError(
            f"{folder} holds no face{why}; there must be train/images/NAME.jpg with train/masks/NAME.png, "
            f"{_IMAGES} with {_ANNOTATIONS}, or images to predict"
        )
    return Listing(layout, tuple(faces), tuple(problems))


def _folders(folder: Path) -> Iterator[Face | str]:
    for name, part in _FOLDERS.items():
        images, masks = folder / name / "images", folder / name / "masks"
        if not images.is_dir():
            continue
        mask_of = {path.stem: path for path in _files(masks, (".png",))} if masks.is_dir() else {}
        for stem, path in _by_stem(_files(images, _SUFFIXES)):
            where = f"{name}/images/{path.name}"
            if stem is None:
                yield f"{where} has the name of another image, but for its suffix"
                continue
            mask = mask_of.pop(stem, None)
            if mask is None and (part != "test" or masks.is_dir()):
                yield f"{where} has no mask {name}/masks/{stem}.png"
            else:
                yield Face(f"{name}/{stem}", part, path, mask)
        yield from (f"{name}/masks/{mask.name} belongs to no image" for mask in mask_of.values())


def _celebamask(folder: Path) -> Iterator[Face | str]:
    annotations = folder / _ANNOTATIONS
    if not annotations.is_dir():
        raise SourceError(f"{folder} has {_IMAGES}, so it must have the masks in {_ANNOTATIONS} too")
    number_of = {name: number for number, name in enumerate(CLASSES)}
    parts: dict[int, tuple[Path, list[int]]] = {}
    for below in sorted(path for path in annotations.iterdir() if path.is_dir()):
        for path in _files(below, (".png",)):
            digits, _, name = path.stem.partition("_")
            if not digits.isdecimal() or name not in number_of:
                yield f"{path.name} is no mask of a part of a face"
                continue
            parts.setdefault(int(digits), (below, []))[1].append(number_of[name])
    part_of = _partition(folder / _MAPPING)
    for path in sorted(_files(folder / _IMAGES, _SUFFIXES), key=lambda each: (len(each.stem), each.stem)):
        if not path.stem.isdecimal():
            yield f"{_IMAGES}/{path.name} is not named by a number"
            continue
        number = int(path.stem)
        if number not in parts:
            yield f"{_IMAGES}/{path.name} has no mask of any part"
            continue
        below, classes = parts.pop(number)
        yield Face(str(number), part_of.get(number, "train"), path, below, tuple(sorted(classes)))
    yield from (f"masks of {number:05d} belong to no image" for number in sorted(parts))


def _partition(path: Path) -> dict[int, str]:
    """What each image is for in CelebA, by its number in CelebA-HQ; nothing without the table.

    A person has images in one part only there, which no split by image can promise.
    """
    if not path.is_file():
        return {}
    found = {}
    lines = path.read_text().splitlines()
    for line in lines[1:]:
        fields = line.split()
        if len(fields) < 3:
            continue
        number = int(fields[2].partition(".")[0])  # of the file in CelebA
        found[int(fields[0])] = "train" if number < _FIRST_VAL else "val" if number < _FIRST_TEST else "test"
    return found


def _plain(folder: Path) -> Iterator[Face | str]:
    images = folder / "images" if (folder / "images").is_dir() else folder
    for stem, path in _by_stem(_files(images, _SUFFIXES)):
        if stem is None:
            yield f"{path.name} has the name of another image, but for its suffix"
        else:
            yield Face(stem, "test", path)


def _files(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def _by_stem(paths: Iterable[Path]) -> Iterator[tuple[str | None, Path]]:
    """Each path with its stem, None where another one had it."""
    seen: set[str] = set()
    for path in paths:
        yield (None if path.stem in seen else path.stem), path
        seen.add(path.stem)
