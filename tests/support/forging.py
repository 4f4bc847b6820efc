"""Manifests that lie, sealed as an attacker would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.store._layout import digest
from stoker.store._manifest import _CHECKSUM


def forge(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and seal it anew, as an attacker would."""
    path = root / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    text = json.dumps({**data, "checksum": "0" * 32}, indent=1).encode()
    path.write_bytes(_CHECKSUM.sub(f'"checksum": "{digest(text)}"'.encode(), text))
