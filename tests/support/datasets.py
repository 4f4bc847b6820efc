"""Small data sets that tests pack."""

from typing import Any

import numpy as np


class Signals:
    """Keyed samples of every kind of field, with content that depends on ``salt`` alone."""

    def __init__(self, keys: list[str], salt: int = 0) -> None:
        self.names = keys
        self.salt = salt
        self.changed: dict[str, int] = {}  # key -> version of its content
        self.reads: list[str] = []

    def __len__(self) -> int:
        return len(self.names)

    def key(self, i: int) -> str:
        return self.names[i]

    def fingerprint(self, i: int) -> str:
        return f"{self.salt}:{self.changed.get(self.names[i], 0)}"

    def __getitem__(self, i: int) -> dict[str, Any]:
        key = self.names[i]
        self.reads.append(key)
        number = sum(key.encode()) + 1000 * self.changed.get(key, 0)
        rng = np.random.default_rng((self.salt, number))
        return {
            "x": rng.standard_normal((2, 50)).astype(np.float32),
            "y": number % 3,
            "tail": rng.integers(0, 99, number % 5).astype(np.int16),
            "group": f"patient-{number % 7}",
        }


def keys(count: int, start: int = 0) -> list[str]:
    return [f"sample-{i:04d}" for i in range(start, start + count)]


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Equal to the bit: values, shapes and types."""
    assert left.keys() == right.keys()
    for name, value in right.items():
        if isinstance(value, str):
            assert left[name] == value
            continue
        expected = np.asarray(value)
        found = np.asarray(left[name])
        assert found.dtype == expected.dtype, name
        assert found.shape == expected.shape, name
        assert found.tobytes() == expected.tobytes(), name
