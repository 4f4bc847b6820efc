"""Samples gathered for a picture, and the picture written."""

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stoker.errors import StoreWriteError, UsageError

_SUFFIXES = (".png", ".pdf", ".svg")


def open_samples(source: str, options: dict[str, Any]) -> Any:
    """The store at that path, or the source that it means.

    Raises:
        UsageError: it has no samples, or a store was given options.
    """
    from stoker.store import open_store
    from stoker.store._settings import find_source

    path = Path(source)
    if path.suffix == ".stoker" or (path / "manifest.json").is_file():
        if options:
            raise UsageError(
                f"options are for raw data, got {', '.join(options)} for the store {source}; leave them out"
            )
        opened: Any = open_store(path)
    else:
        opened = find_source(source, options)
    if len(opened) == 0:
        raise UsageError(f"a preview needs at least one sample, got none in {source}")
    return opened


def spread(num_samples: int, total: int) -> list[int]:
    """So many numbers, evenly spaced: a source is often sorted by class."""
    count = min(num_samples, total)
    return [number * (total - 1) // max(1, count - 1) for number in range(count)]


def gather(
    samples: Any, numbers: Sequence[int], roles: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """These samples as a batch, padded as a Loader pads them, and their names.

    Raises:
        UsageError: they lack a field that has a role.
    """
    from stoker.loader._collate import Collation, tensors_of
    from stoker.store._samples import canonical, check_types, field_types

    keys = [str(samples.key(i)) if hasattr(samples, "key") else str(i) for i in numbers]
    read = [canonical(samples[i], key) for i, key in zip(numbers, keys, strict=True)]
    for sample, key in zip(read, keys, strict=True):
        check_types(sample, field_types(read[0]), key)
    lacking = [name for name in roles if name not in read[0]]
    if lacking:
        raise UsageError(
            f"every field with a role must be in the source, got no {', '.join(map(repr, lacking))} among "
            f"{', '.join(map(repr, read[0]))}; say which field is what with --role FIELD=ROLE"
        )
    columns = {name: [sample[name] for sample in read] for name in read[0]}
    ragged = {name: values for name, values in columns.items() if len(set(map(np.shape, values))) > 1}
    batch = tensors_of(Collation("pad", None)({name: columns[name] for name in columns if name in ragged}))
    batch |= _stacked({name: columns[name] for name in columns if name not in ragged})
    return batch, [f"{number}: {key}" for number, key in zip(numbers, keys, strict=True)]


def sample_rate(batch: Mapping[str, Any]) -> float | None:
    """That of the recordings, if they have a field for it and agree."""
    rates = set(np.asarray(batch.get("rate", [])).reshape(-1).tolist())
    return float(rates.pop()) if len(rates) == 1 else None


def check_out(out: Path) -> None:
    """Raise a UsageError if no picture can be written there, before anything is drawn."""
    if out.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"--out must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}, got {str(out)!r}; rename it"
        )
    if not out.parent.is_dir():
        raise UsageError(f"--out must lie in a folder that exists, got {str(out)!r}; make {out.parent} first")
    if out.is_dir():
        raise UsageError(f"--out must be a file, got the folder {str(out)!r}; add a name such as grid.png")


def save(figure: Any, out: Path) -> None:
    """Write the picture.

    Raises:
        StoreWriteError: it cannot be written.
    """
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # in a file's name
        figure.savefig(written, format=out.suffix[1:].lower())
    try:
        out.write_bytes(written.getbuffer())
    except OSError as error:
        raise StoreWriteError(
            f"--out must be a writable file, got {str(out)!r}: {error.strerror}; choose another path"
        ) from error


def _stacked(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
    import torch

    return {
        name: values if isinstance(values[0], str) else torch.from_numpy(np.stack(values))
        for name, values in columns.items()
    }
