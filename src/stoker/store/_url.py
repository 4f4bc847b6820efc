"""What the URL of a store or a source may be."""

import re
from typing import TypeGuard
from urllib.parse import urlsplit

from stoker.errors import UsageError

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_url(path: object) -> TypeGuard[str]:
    """Whether this is the text of a URL and not a path."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def checked_url(url: str) -> str:
    """The URL without a slash at its end, its scheme in small letters.

    Raises:
        UsageError: it carries credentials, which would end up in logs, messages and pickles.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()  # HTTPS:// is the same, to all but fsspec
    parts = urlsplit(url)
    if parts.password is not None or (scheme in {"http", "https"} and (parts.username or parts.query)):
        bare = f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise UsageError(
            f"a URL must not carry credentials or a query, that of {bare} does; credentials come from the "
            "environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, …) or the machine's role"
        )
    return f"{scheme}://{rest}".rstrip("/")
