"""How long and how often something is tried that may fail for a while: pure."""

import errno
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.errors import DamagedStoreError, UsageError

DEADLINE_S, STALL_S = 600.0, 30.0
MAX_WRONG = 5  # times that bytes arrive which are not the published ones: more would not help

_LASTING = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,
    TypeError,
    ValueError,
)
_LOCAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_MAX_REASON_LENGTH = 300
_FORBIDDEN = frozenset({401, 403})
_LASTING_STATUS = frozenset({400, 401, 403, 404, 405, 410})
_BEYOND = 416  # the object ends before the bytes that were asked for
_QUERY = re.compile(r"(://[^\s?#'\"<>]*)[?#][^\s'\"<>]*")
_LASTING_NAMES = frozenset({"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"})


@dataclass(frozen=True)
class Patience:
    """Limits of one fetch."""

    deadline_s: float = DEADLINE_S  # of all tries together
    stall_s: float = STALL_S  # without a byte, after which a try is given up
    first_delay_s: float = 0.2
    longest_delay_s: float = 20.0

    def __post_init__(self) -> None:
        for name in ("deadline_s", "stall_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be more than 0, got {getattr(self, name)}")

    def delays(self) -> Iterator[float]:
        """Pauses between tries: twice as long each time, and random, so that many do not come at once."""
        for number in itertools.count():
            whole = min(self.longest_delay_s, self.first_delay_s * 2 ** min(number, 32))
            yield whole * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


@dataclass(frozen=True)
class Fault:
    """Why a try failed: words and what they mean. No exception, which would keep its callers' frames."""

    text: str
    is_lasting: bool = False
    is_missing: bool = False
    is_forbidden: bool = False
    is_damage: bool = False
    is_local: bool = False

    @classmethod
    def of(cls, error: BaseException) -> "Fault":
        """Of a library's error, or of bytes that were found wrong.

        Never by its ``repr``, which for some holds the request's headers; and no URL with its query, in which
        those that a server leads on to carry signatures.
        """
        if isinstance(error, DamagedStoreError):
            return cls(str(error), is_damage=True)
        text = _QUERY.sub(r"\1", " ".join(str(error).split()))[:_MAX_REASON_LENGTH]
        kind = type(error).__name__
        why = f"{kind}: {text}" if text else kind
        if _is_beyond(error):
            return cls(f"it ends before the bytes that were asked for ({why})", is_damage=True)
        return cls(
            why,
            is_lasting=is_lasting(error),
            is_local=_is_local(error),
            is_missing=isinstance(error, FileNotFoundError),
            is_forbidden=isinstance(error, PermissionError) or _status(error) in _FORBIDDEN,
        )


class FaultError(Exception):
    """A try failed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def is_lasting(error: BaseException) -> bool:
    """Whether trying again cannot help: nothing there, no permission, no credentials, a mistake of ours.

    Everything else (a refused connection, a 500, throttling) may pass.
    """
    if _is_local(error):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return (
        isinstance(error, _LASTING)
        or _status(error) in _LASTING_STATUS
        or not names.isdisjoint(_LASTING_NAMES)
    )


def _is_local(error: BaseException) -> bool:
    """Whether it is the disk of this machine that failed."""
    return isinstance(error, OSError) and error.errno in _LOCAL


def _status(error: BaseException) -> object:
    return getattr(error, "status", None)  # of HTTP, as aiohttp has it


def _is_beyond(error: BaseException) -> bool:
    """As aiohttp, Azure's and Google's libraries tell it; of S3's, the cause alone does."""
    answer = getattr(error.__cause__, "response", None)
    if isinstance(answer, dict):
        return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == _BEYOND)
    told = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    return next((status for status in told if status is not None), None) == _BEYOND
