"""`report.json`: the diagnosis and what it rests on, for other programs."""

import dataclasses
import math
from typing import Any, cast

from stoker.doctor._diagnosis import SCHEMA_VERSION, Advice, Cause, Diagnosis, Interval
from stoker.doctor._record import Place, Record
from stoker.errors import UsageError


def to_json(diagnosis: Diagnosis, record: Record | None = None) -> dict[str, Any]:
    """Plain data that `json.dumps(..., allow_nan=False)` takes; what is no number is null."""
    found = dataclasses.asdict(diagnosis)
    found["ceiling_speedup"] = diagnosis.ceiling_speedup.value if diagnosis.ceiling_speedup else None
    found["device_ceiling_speedup"] = (
        diagnosis.device_ceiling_speedup.value if diagnosis.device_ceiling_speedup else None
    )
    found["ceiling_speedup_interval"] = diagnosis.ceiling_speedup
    found["device_ceiling_speedup_interval"] = diagnosis.device_ceiling_speedup
    found["step_s"] = diagnosis.step_s.value
    found["step_s_interval"] = diagnosis.step_s
    found["advice"] = [_advice_to_json(advice) for advice in diagnosis.advice]
    if record is not None:
        found["run"] = {
            "command": record.command,
            "machine": record.machine,
            "loaders": record.loaders,
            "pauses": record.pauses,
            "operators": record.operators,
            "trials": record.trials,
            "lines": sorted(record.lines, key=lambda line: -line.seconds)[:50],
            "events": record.events,
            "not_observed": record.not_observed,
            "num_steps": {
                phase: len(record.in_phase(phase)) for phase in ("warmup", "normal", "host", "device")
            },
            "ended": record.ended,
            "exit_code": record.exit_code,
            "error": record.error,
            "seconds": record.seconds,
        }
    return {"schema_version": SCHEMA_VERSION} | cast(dict[str, Any], _plain(found))


def from_json(report: dict[str, Any]) -> Diagnosis:
    """The diagnosis back from its report. A report of another version, or none, raises UsageError."""
    version = report.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"schema_version of a report must be {SCHEMA_VERSION}, got {version!r}: "
            "make it again with this version of `stoker doctor`"
        )
    try:
        return Diagnosis(
            verdict=report["verdict"],
            confidence=report["confidence"],
            sentence=report["sentence"],
            culprit=report["culprit"],
            causes=tuple(Cause(**(cause | {"place": _place(cause["place"])})) for cause in report["causes"]),
            stages=report["stages"],
            step_s=Interval(**report["step_s_interval"]),
            samples_per_s=report["samples_per_s"],
            starved_fraction=report["starved_fraction"],
            ceiling_speedup=_interval(report["ceiling_speedup_interval"]),
            device_ceiling_speedup=_interval(report["device_ceiling_speedup_interval"]),
            advice=tuple(_advice_from_json(advice) for advice in report["advice"]),
            transforms=report["transforms"],
            notes=tuple(report["notes"]),
            overhead_s_per_step=report["overhead_s_per_step"],
            pause_s_per_step=report["pause_s_per_step"],
            step_times={name: tuple(times) for name, times in report["step_times"].items()},
            samples_per_step=report["samples_per_step"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"a report must have the fields that `stoker doctor` writes, but: {error}: make it again"
        ) from error


def _advice_to_json(advice: Advice) -> dict[str, Any]:
    found = dataclasses.asdict(advice)
    speedup = found.pop("speedup")
    return found | {"predicted_speedup": speedup["value"], "low": speedup["low"], "high": speedup["high"]}


def _advice_from_json(report: dict[str, Any]) -> Advice:
    report = dict(report)
    speedup = Interval(report.pop("predicted_speedup"), report.pop("low"), report.pop("high"))
    return Advice(**(report | {"speedup": speedup, "place": _place(report["place"])}))


def _place(report: dict[str, Any] | None) -> Place | None:
    return Place(**report) if report else None


def _interval(report: dict[str, Any] | None) -> Interval | None:
    return Interval(**report) if report else None


def _plain(value: Any) -> Any:
    """Any data goes in, JSON's own types come out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
