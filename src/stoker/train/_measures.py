"""Any of torchmetrics' forms (one metric, a dict, a collection) as one thing with a state.

Values stay on the device until they are read, all of them in one go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from stoker.errors import UsageError

Value = float | list[float]


class Measures:
    """Metrics by name; updated together, computed together.

    Args:
        metrics: what `Task.metrics` gave: None, a metric, a mapping of names to metrics, or a
            MetricCollection. A metric is anything with update, compute and reset; torchmetrics'
            own also add up over processes and can be saved in the middle of an epoch.
    """

    def __init__(self, metrics: Any, device: torch.device) -> None:
        self._groups: dict[str, Any] = _named(metrics)
        for metric in self._groups.values():
            if hasattr(metric, "to"):
                metric.to(device)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def update(self, *arguments: Any) -> None:
        """Take in one batch."""
        for metric in self._groups.values():
            metric.update(*arguments)

    def reset(self) -> None:
        """Forget what was taken in."""
        for metric in self._groups.values():
            metric.reset()

    def compute(self) -> dict[str, Any]:
        """Values by name, still on the device; under a process group, those of all ranks together."""
        values: dict[str, Any] = {}
        for group, metric in self._groups.items():
            for name, value in _flat(group, metric).items():
                if name in values or name == "loss":
                    taken = "the loss" if name == "loss" else "another metric"
                    raise UsageError(
                        f"a metric's name must be its own, {name!r} is that of {taken}; give the metrics as "
                        f"a dict, whose names come before theirs: {{'a': ..., 'b': ...}} has 'a/{name}'"
                    )
                values[name] = value
        return values

    def higher_is_better(self, name: str) -> bool | None:
        """What the metric itself says, if it does."""
        return getattr(dict(self._leaves()).get(name), "higher_is_better", None)

    def state(self) -> dict[str, Any]:
        """What the metrics have taken in so far, as tensors and numbers."""
        return {name: _metric_state(metric) for name, metric in self._leaves()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name, metric in self._leaves():
            if name in state:
                _load_metric_state(metric, state[name])

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        """Every single metric, by the name of its value where it gives one."""
        for group, metric in self._groups.items():
            if _is_collection(metric):
                for name, member in metric.items():  # also brings members that share a state up to date
                    yield _joined(group, name), member
            else:
                yield group or type(metric).__name__, metric


def read_values(values: Mapping[str, Any]) -> dict[str, Value]:
    """Numbers out of tensors, with one wait for the device in all; vectors become lists."""
    tensors = {name: value.detach() for name, value in values.items() if isinstance(value, Tensor)}
    read: dict[str, Value] = {}
    flat: list[float] = []
    if tensors:
        flat = torch.cat([value.double().reshape(-1) for value in tensors.values()]).tolist()
    start = 0
    for name, value in values.items():
        if name not in tensors:
            read[name] = float(value)
            continue
        part = flat[start : start + value.numel()]
        start += value.numel()
        read[name] = part[0] if value.dim() == 0 else part
    return read


def _named(metrics: Any) -> dict[str, Any]:
    if metrics is None:
        return {}
    groups = dict(metrics) if isinstance(metrics, Mapping) else {"": metrics}
    for name, metric in groups.items():
        if not (hasattr(metric, "update") and hasattr(metric, "compute") and hasattr(metric, "reset")):
            raise UsageError(
                f"a metric must have update, compute and reset, as those of torchmetrics, "
                f"got {type(metric).__name__}" + (f" for {name!r}" if name else "; give several as a dict")
            )
    return groups


def _is_collection(metric: Any) -> bool:
    return hasattr(metric, "compute") and hasattr(metric, "items")


def _flat(name: str, metric: Any) -> dict[str, Any]:
    """The metric's value by its name, or its values if it gives several as a dict."""
    value = metric.compute()
    if not isinstance(value, Mapping):
        return {name or type(metric).__name__: value}
    return {_joined(name, key): part for key, part in value.items()}


def _joined(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _metric_state(metric: Any) -> dict[str, Any]:
    if not hasattr(metric, "metric_state"):
        return dict(metric.state_dict()) if hasattr(metric, "state_dict") else {}
    held = {
        name: [part.detach().clone() for part in value] if isinstance(value, list) else value.detach().clone()
        for name, value in metric.metric_state.items()
    }
    return {"held": held, "num_updates": metric._update_count}  # noqa: SLF001 - it has no public name


def _load_metric_state(metric: Any, state: Mapping[str, Any]) -> None:
    if not hasattr(metric, "metric_state"):
        if hasattr(metric, "load_state_dict"):
            metric.load_state_dict(state)
        return
    for name, value in state["held"].items():
        on_device = (
            [part.to(metric.device) for part in value] if isinstance(value, list) else value.to(metric.device)
        )
        setattr(metric, name, on_device)
    metric._update_count = state["num_updates"]  # noqa: SLF001 - likewise
    metric._computed = None  # noqa: SLF001 - a value computed before is of another state
