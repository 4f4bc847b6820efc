"""One checkpoint file: whole or absent, safe to load, and never believed when its bytes have changed.

It is what ``torch.save`` writes, with a digest of those bytes in the comment that ends a zip file: any
PyTorch program opens it with ``torch.load(path, weights_only=True)``.
"""

import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from stoker.errors import (
    CheckpointMismatchError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UsageError,
)
from stoker.train._files import replaced

_MARK = b"stoker checkpoint xxh3_128="
_NUM_COMMENT_BYTES = len(_MARK) + 32
_NO_COMMENT = b"\0\0"  # the two bytes that end what torch.save writes: the length of no comment
_READ_BYTES = 1 << 20


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write the state so that after a crash at any moment the file is the old one or the new one.

    Args:
        path: of the file; its folder is made.
        state: tensors, numbers, strings, bytes and None, in dicts, lists and tuples. Numpy's
            arrays and numbers become tensors and Python's numbers.

    Raises:
        UsageError: names a value that could not be loaded safely again.
        CheckpointError: the disk is full, read-only or forbidden; the old file is as it was.
    """
    data = _plain(state, "state")
    with replaced(Path(path)) as file:
        written = _Digesting(file)
        torch.save(data, cast(IO[bytes], written))
        if not written.end.endswith(_NO_COMMENT):
            raise AssertionError("torch.save writes a zip file without a comment")
        file.seek(-len(_NO_COMMENT), os.SEEK_END)
        file.write(struct.pack("<H", _NUM_COMMENT_BYTES) + _MARK + written.digest.hexdigest().encode())


def load_checkpoint(path: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a state after its digest was checked; no code in the file is ever run.

    Raises:
        CheckpointNotFoundError: there is no such file.
        DamagedCheckpointError: it is cut short, changed, or was not written by `save_checkpoint`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            _check_digest(path, file)
            file.seek(0)
            state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {path}; a run leaves last.pt and best.pt in its checkpoint_dir"
        ) from error
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise DamagedCheckpointError(f"{path} cannot be loaded safely: {error}") from error
    return state


def load_weights(model: nn.Module, state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Give the model a state's weights, the averaged ones where there are; `path` is named in the error.

    Raises:
        CheckpointMismatchError: they are of another model.
    """
    average = state.get("ema") or {"average": {}}
    try:
        model.load_state_dict({**state["model"], **average["average"]})
    except (KeyError, RuntimeError) as error:
        raise CheckpointMismatchError(f"{path} is of another model than this one: {error}") from error


class _Digesting:
    """Passes on what is written, and takes the digest of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = xxhash.xxh3_128()
        self.end = b""

    def write(self, piece: Any) -> int:
        self.digest.update(piece)
        self.end = bytes(memoryview(piece)[-2:])
        return self._file.write(piece)

    def flush(self) -> None:
        self._file.flush()


def _check_digest(path: Path, file: BinaryIO) -> None:
    num_bytes = path.stat().st_size - _NUM_COMMENT_BYTES - len(_NO_COMMENT)
    file.seek(max(0, num_bytes + len(_NO_COMMENT)))
    comment = file.read()
    if num_bytes < 0 or not comment.startswith(_MARK):
        raise DamagedCheckpointError(
            f"{path} is cut short, or no checkpoint of Stoker's: it does not end with a digest. "
            f"Resume from the checkpoint before it (resume='previous'); torch.load reads files of others"
        )
    digest = xxhash.xxh3_128()
    file.seek(0)
    left = num_bytes
    while left:
        piece = file.read(min(left, _READ_BYTES))
        digest.update(piece)
        left -= len(piece)
    digest.update(_NO_COMMENT)
    if digest.hexdigest().encode() != comment.removeprefix(_MARK):
        raise DamagedCheckpointError(
            f"{path} is damaged: its bytes are not those that were written. "
            f"Resume from the checkpoint before it (resume='previous'), or from a copy"
        )


def _plain(value: Any, place: str) -> Any:
    """The value as what weights_only loads again."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value if type(value) in {type(None), bool, int, float, str, bytes} else _base(value)
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {_plain(key, place): _plain(part, f"{place}[{key!r}]") for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_plain(part, f"{place}[{number}]") for number, part in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.dtype | torch.device):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise UsageError(
        f"a checkpoint holds tensors, numbers, strings and None, in dicts, lists and tuples, "
        f"got {type(value).__name__} at {place}"
    )


def _base(value: Any) -> Any:
    """A number or string of a subclass (an enum's, numpy's) as the plain one."""
    kind = next(kind for kind in (bool, int, float, str, bytes) if isinstance(value, kind))
    return kind(value.value if hasattr(value, "value") else value)
