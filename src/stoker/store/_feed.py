"""How the packer sees any source: keys and fingerprints for all, whatever the source offers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from stoker.errors import BadSampleError, SourceError, StokerError
from stoker.store._checksums import sample_digest
from stoker.store._samples import Sample, canonical
from stoker.store._strings import Strings

_KEY_DIGITS = 9  # of a sample that has no key but its number; more if there are more samples
_MAX_READS = 3  # of a sample whose file changes while it is read


class Feed:
    """A source with its transform, giving samples by number with key and fingerprint.

    A source without ``fingerprint`` is read to learn whether a sample changed: its fingerprint is
    the digest of what it gave, before the transform.
    """

    def __init__(self, source: Any, transform: Callable[[Any], Any] | None, identity: str) -> None:
        self._source = source
        self._transform = transform
        self._identity = int.from_bytes(bytes.fromhex(identity), "little")
        self.has_fingerprints = hasattr(source, "fingerprint")

    def __len__(self) -> int:
        return len(self._source)

    @property
    def parts(self) -> dict[str, Any]:
        """What the user wrote, by what it is here."""
        given = {"source": self._source, "transform": self._transform}
        return {name: part for name, part in given.items() if part is not None}

    @property
    def channel_axis(self) -> Mapping[str, int | None]:
        """What the source declares."""
        axes: Mapping[str, int | None] = getattr(self._source, "channel_axis", {})
        return axes

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The class names behind label numbers, by field, as the source declares them."""
        declared = getattr(self._source, "classes", {})
        if not isinstance(declared, Mapping):  # torchvision's datasets have a list here
            declared = {"y": declared}
        return {str(field): tuple(map(str, names)) for field, names in declared.items()}

    def key(self, i: int) -> str:
        """The sample's name: stable, unique."""
        if hasattr(self._source, "key"):
            return str(self._source.key(i))
        return f"{i:0{_KEY_DIGITS}d}"

    def keys(self) -> Strings:
        """All keys."""
        if not hasattr(self._source, "key") and len(self) <= 10**_KEY_DIGITS:
            return Strings.numbers(len(self), _KEY_DIGITS)
        if hasattr(self._source, "keys") and hasattr(self._source, "key"):
            table = self._source.keys()
            if isinstance(table, Strings):
                return table
        return Strings.of(self.key(i) for i in range(len(self)))

    def fingerprints(self) -> NDArray[np.uint64]:
        """All fingerprints [N, 2] as the source has them now; only with ``has_fingerprints``."""
        if hasattr(self._source, "fingerprints"):
            found: NDArray[np.uint64] = self._source.fingerprints()
        else:
            each = bytearray()
            for i in range(len(self)):
                each += _as_bytes(self._source.fingerprint(i))
            found = np.frombuffer(each, np.uint64).reshape(-1, 2)
        return found ^ np.frombuffer(self._identity.to_bytes(16, "little"), np.uint64)

    def read(self, i: int, key: str, known: bytes | None) -> tuple[bytes, Sample | None]:
        """Fingerprint and sample number ``i``; no sample if its fingerprint is ``known``.

        Raises:
            BadSampleError: it cannot be read or transformed, or its file keeps changing.
        """
        try:
            found, raw = self._read_unchanged(i, key)
            fingerprint = self._with_identity(found)
            if fingerprint == known:
                return fingerprint, None
            if self._transform is not None:
                raw = self._transform(raw)
            return fingerprint, canonical(raw, key)
        except StokerError:
            raise
        except Exception as error:  # whatever a user's code raises belongs to this sample
            raise BadSampleError(key, f"{type(error).__name__}: {error}") from error

    def _read_unchanged(self, i: int, key: str) -> tuple[bytes, Any]:
        if not self.has_fingerprints:
            raw = self._source[i]
            return sample_digest(canonical(raw, key)), raw
        for _ in range(_MAX_READS):
            before = self._source.fingerprint(i)
            raw = self._source[i]
            if before == self._source.fingerprint(i):
                return _as_bytes(before), raw
        raise BadSampleError(key, f"it changed during each of {_MAX_READS} attempts to read it")

    def _with_identity(self, fingerprint: bytes) -> bytes:
        mixed = int.from_bytes(fingerprint, "little") ^ self._identity
        return mixed.to_bytes(16, "little")


def as_feed(source: Any, transform: Callable[[Any], Any] | None, identity: str) -> Feed:
    """The source, checked to be one, as the packer sees it."""
    if len(source) == 0:
        raise SourceError(f"the source is empty: {source!r}; a store has at least one sample")
    return Feed(source, transform, identity)


def _as_bytes(fingerprint: Any) -> bytes:
    """128 bits of whatever a source calls a fingerprint."""
    if isinstance(fingerprint, bytes) and len(fingerprint) == 16:
        return fingerprint
    text = fingerprint if isinstance(fingerprint, bytes) else repr(fingerprint).encode()
    return xxhash.xxh3_128_digest(text)
