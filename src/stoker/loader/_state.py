"""A loader's state: versioned, small, the same on every rank; mismatches are refused by name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.loader._loader import Loader

_VERSION = 1


def make_state(loader: "Loader", order: str, consumed: int) -> dict[str, Any]:
    """Plain numbers and strings; ``consumed`` counts samples that all ranks together were given."""
    return {
        "schema_version": _VERSION,
        "seed": loader.seed,
        "epoch": loader.epoch,
        "consumed": consumed,
        "num_samples": loader.plan.length,
        "order": order,
        "data": loader.data.identity,
    }


def check_state(loader: "Loader", order: str, state: Mapping[str, Any]) -> tuple[int, int]:
    """Epoch and consumed samples of a state that fits this loader."""
    expected = make_state(loader, order, 0)
    missing = expected.keys() - state.keys()
    if missing:
        raise UsageError(f"this is no loader's state: it lacks {sorted(missing)}")
    remedies = {
        "schema_version": "it was written by another version of Stoker",
        "seed": "the order would be another one; make the loader with the same seed",
        "num_samples": "the data or the split changed since",
        "order": "make the loader with the same shuffle and weights",
        "data": "the store's content or the chosen fields changed since",
    }
    for name, remedy in remedies.items():
        if state[name] != expected[name]:
            raise UsageError(
                f"the state has {name} {state[name]!r}, this loader {expected[name]!r}: {remedy}"
            )
    epoch, consumed = int(state["epoch"]), int(state["consumed"])
    if epoch < 0 or not 0 <= consumed <= loader.plan.length:
        raise UsageError(f"the state's epoch {epoch} or consumed {consumed} cannot be")
    return epoch, consumed
