"""The manifest: the one file that says what a store is. It is replaced last, in one rename.

It names other files only by the digest of their content, so that no manifest can point outside the
store's folder, and it carries a checksum over its own bytes.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stoker.errors import (
    DamagedStoreError,
    StoreError,
    StoreMismatchError,
    StoreNotFoundError,
    UnsafeStoreError,
)
from stoker.store._codec import Compression
from stoker.store._durable import write_file
from stoker.store._layout import digest
from stoker.store._samples import NAME_PATTERN, FieldType

SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
STATISTICS_NAME = "statistics.json"
LOG_NAME = "pack.log"
SHARD_FOLDER = "shards"
SHARD_BYTES = 64 << 20  # also what one packing worker holds in memory
MAX_MANIFEST_BYTES = 1 << 28
_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{32})"')

Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class FieldSpec(_Entry):
    """One field: a size that differs between samples is None in ``shape``."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    kind: Literal["array", "string"]
    dtype: str
    shape: tuple[Count | None, ...]
    channel_axis: Count | None

    @property
    def ragged(self) -> bool:
        """Whether samples differ in size (strings always may)."""
        return self.kind == "string" or None in self.shape

    @property
    def type(self) -> FieldType:
        """What every sample's value must be."""
        return FieldType(self.kind, self.dtype, len(self.shape))


class FieldStats(_Entry):
    """Statistics over every finite value of a field, one entry a channel."""

    count: tuple[Count, ...]
    num_nonfinite: tuple[Count, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]


class FileEntry(_Entry):
    """A file of the store, by the digest of its content."""

    digest: Digest
    num_bytes: Count
    num_samples: Annotated[int, Field(ge=0, lt=2**32)]


class ShardEntry(FileEntry):
    """A shard, the size of its values, and where each field that can be mapped begins in its file."""

    value_bytes: Count  # before compression
    offsets: dict[str, Count]


class SplitRule(_Entry):
    """How samples are divided; see ``_splits``."""

    fractions: dict[str, Annotated[float, Field(gt=0, le=1)]]
    stratify: str | None = None
    group: str | None = None


class TransformEntry(_Entry):
    """Which transform the samples went through; ``identity`` changes whenever it does."""

    name: str
    identity: Digest
    version: str | None = None


class Manifest(_Entry):
    """What a store is."""

    schema_version: Literal[1] = 1
    stoker_version: str
    created: str
    num_samples: Count
    fields: tuple[FieldSpec, ...]
    stats: dict[str, FieldStats]
    classes: dict[str, tuple[str, ...]]
    transform: TransformEntry
    compression: Compression
    splits: SplitRule | None
    index: FileEntry
    shards: tuple[ShardEntry, ...]
    content_digest: Digest
    superseded: tuple[Digest, ...] = ()  # files of the store before this one, kept for its readers

    @property
    def num_bytes(self) -> int:
        """Size of all data files on disk."""
        return self.index.num_bytes + sum(shard.num_bytes for shard in self.shards)


def shard_path(root: Path, name: str) -> Path:
    """Where the shard of that digest lies."""
    return root / SHARD_FOLDER / f"{name}.h5"


def index_path(root: Path, name: str) -> Path:
    """Where the index of that digest lies."""
    return root / f"index-{name}.h5"


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Publish the manifest: from here on the store is the new one."""
    data = manifest.model_dump(mode="json")
    text = json.dumps({**data, "checksum": "0" * 32}, indent=1).encode()
    sealed = _CHECKSUM.sub(f'"checksum": "{digest(text)}"'.encode(), text)
    write_file(root / MANIFEST_NAME, [sealed])


def read_manifest(root: Path) -> Manifest:
    """The manifest of the store at ``root``, checked.

    Raises:
        StoreNotFoundError: no store there, or only an unfinished one.
        DamagedStoreError: its bytes are not those that were published.
        UnsafeStoreError: it says what no manifest of ours would.
    """
    path = root / MANIFEST_NAME
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise UnsafeStoreError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes; no manifest is")
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreNotFoundError(_why_absent(root)) from error
    except NotADirectoryError as error:
        raise StoreNotFoundError(f"{root} is a file; a store is a folder") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    return parse_manifest(text, str(path))


def parse_manifest(text: bytes, path: str) -> Manifest:
    """The manifest in these bytes, checked; ``path`` is what messages call it."""
    remedy = (
        "move it away and run `stoker pack` again, with the options of the first time (splits too): intact "
        "shards are used again"
    )
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is damaged ({error}); {remedy}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreMismatchError(
            f"{path} has schema version {version}, this Stoker reads up to {SCHEMA_VERSION}; upgrade Stoker"
        )
    blank = _CHECKSUM.sub(b'"checksum": "' + b"0" * 32 + b'"', text)
    if not isinstance(data, dict) or digest(blank) != data.pop("checksum", None):
        raise DamagedStoreError(f"{path} is damaged (its checksum does not fit); {remedy}")
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnsafeStoreError(f"{path}: {where}: {first['msg']}") from error
    if manifest.num_samples != manifest.index.num_samples:
        raise UnsafeStoreError(f"{path} and its index differ in the number of samples")
    if len({field.name for field in manifest.fields}) != len(manifest.fields):
        raise UnsafeStoreError(f"{path} names a field twice")
    return manifest


def _why_absent(root: Path) -> str:
    if (root / SHARD_FOLDER).is_dir():
        return f"{root} is not finished: it is being packed, or that was interrupted; run `stoker pack` again"
    if root.is_dir():
        return f"{root} is a folder but not a store (no {MANIFEST_NAME}); make one: `stoker pack`"
    return f"there is no store at {root}; make one: `stoker pack SOURCE {root}`"
