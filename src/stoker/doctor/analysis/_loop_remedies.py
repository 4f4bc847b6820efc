"""Cures for what the loop itself does: host code, tiny operators, copies, computing."""

import re
from dataclasses import replace

from stoker.doctor._diagnosis import Advice, Cause, Interval, Verdict
from stoker.doctor._words import duration, percent
from stoker.doctor.analysis._causes import Blame, Case
from stoker.doctor.analysis._forecast import Forecast, without
from stoker.doctor.analysis._queue import Loop, play

_METRIC = re.compile(r"metric|f1|accuracy|precision|recall|auc|confusion|jaccard|dice|iou", re.IGNORECASE)
_DISPATCH_S = 8e-6  # of an operator, whatever its size


def loop_remedies(case: Case, blamed: Blame, predicted: Forecast | None, verdict: Verdict) -> list[Advice]:
    """Cures for what the loop itself does."""
    found = []
    for cause in blamed.causes:
        if cause.kind == "host code" and cause.place is not None and not _makes_data(case, cause):
            found.append(_host_code(case, cause, predicted))
        elif cause.kind == "operators":
            found += _operators(case, cause)
        elif cause.kind == "copy":
            found += _copying(case, cause)
        elif cause.kind == "compute" and verdict == "compute-bound":
            found += _computing(case, cause)
    if case.shares.header > 0.03:
        found.append(_generator(case))
    return found


def _makes_data(case: Case, cause: Cause) -> bool:
    return case.cost is not None and any(line.place == cause.place for line in case.cost.lines)


def _host_code(case: Case, cause: Cause, predicted: Forecast | None) -> Advice:
    what = cause.text.removeprefix("line ")
    saved = cause.share * case.timing.whole_s / case.timing.batches_per_step
    speedup = without(cause.share, least=0.7, likely=0.95)
    if predicted is not None:  # with a faster loop the loader may become the bottleneck
        model = predicted.model
        likely = model.speedup(replace(model.present, loop_s=-0.95 * saved))
        speedup = Interval(likely, min(likely, speedup.low), max(likely, speedup.high))
    if _METRIC.search(cause.text):
        action = f"Take the metric off the step ({what}): count on the device, compute once an epoch."
    else:
        action = f"Vectorise {what} or take it off the step."
    return Advice(
        key="host code", action=action, reason=f"It takes {percent(cause.share)} of a step on the host.",
        speedup=speedup, ram_bytes=0, changes_training=False, place=cause.place,
    )  # fmt: skip


def _operators(case: Case, cause: Cause) -> list[Advice]:
    operators = case.record.operators
    assert operators is not None, "a cause of this kind comes from them"
    found = [
        Advice(
            key="operators",
            action="Replace the Python loop in the forward pass by one call (cuDNN's RNN, a convolution, a "
            "scan), or compile the module.",
            reason=f"{cause.text}: Python and the dispatcher take longer than the arithmetic.",
            speedup=without(cause.share, least=0.3, likely=0.7, most=0.95),
            ram_bytes=0,
            changes_training=False,
            place=cause.place,
        )
    ]
    size_now = case.loader.batch_size if case.loader else None
    if size_now is not None and size_now <= 32:
        each = max(operators.seconds_per_operator, 1e-9)
        fixed = cause.share * min(1.0, _DISPATCH_S / each)
        found.append(
            Advice(
                key="batch_size",
                action=f"Double the batch size ({size_now} to {2 * size_now}), if the training allows it.",
                reason="While dispatch takes the time, an operator costs the same for twice the samples.",
                speedup=Interval(2 / (2 - fixed), 1.0, 2.0),
                ram_bytes=0,
                changes_training=True,
                loader=case.loader.name if case.loader else None,
                place=case.loader.made_at if case.loader else None,
            )
        )
    return found


def _copying(case: Case, cause: Cause) -> list[Advice]:
    loader = case.loader
    is_cuda = case.record.machine.device.startswith("cuda")
    if is_cuda and loader is not None and not loader.pin_memory:
        return [
            Advice(
                key="pin_memory",
                action=f"Set pin_memory=True for the loader {loader.name!r} and copy with non_blocking=True.",
                reason=f"{cause.text}, from pageable memory.",
                speedup=without(cause.share, least=0.3, likely=0.5),
                ram_bytes=2 * (case.outlook.batch_bytes if case.outlook else 0),
                changes_training=False,
                settings={"pin_memory": True},
                loader=loader.name,
                place=loader.made_at,
            )
        ]
    return [
        Advice(
            key="copy",
            action="Copy fewer bytes (as stored, uint8 or half precision, converted there), all at once.",
            reason=cause.text + ".",
            speedup=without(cause.share, least=0.3, likely=0.5),
            ram_bytes=0,
            changes_training=False,
            place=cause.place,
        )
    ]


def _computing(case: Case, cause: Cause) -> list[Advice]:
    """Nothing here is measured: what others saw on such devices, hence the wide intervals."""
    if not case.record.machine.device.startswith("cuda"):
        return []
    share = cause.share
    reason = f"{percent(share)} of a step computes. By experience on such devices, not by the model."
    return [
        Advice(
            key="precision", action="Compute in bfloat16 (torch.autocast).", reason=reason,
            speedup=without(share, least=0.0, likely=0.3, most=0.6), ram_bytes=0, changes_training=True,
        ),
        Advice(
            key="compile", action="Compile the model (torch.compile).", reason=reason,
            speedup=without(share, least=0.0, likely=0.15, most=0.4), ram_bytes=0, changes_training=False,
        ),
    ]  # fmt: skip


def _generator(case: Case) -> Advice:
    whole, cores = case.timing.whole_s, case.record.machine.num_cores
    making = case.shares.header * whole
    left = max(whole - making, 1e-9)
    loop = Loop(left, min(max(0.0, case.timing.cpu_s - making) / left, float(max(1, cores))), 1.0, 2e-4)
    workers = max(1, cores)
    flow = play([(0.0, making)] * 100, loop, num_workers=workers, prefetch_factor=2, in_order=True,
                num_cores=cores)  # fmt: skip
    lines = case.shares.other.header_lines
    value = whole / max(flow.batch_s, 1e-12)
    return Advice(
        key="DataLoader",
        action=f"Make the data in a DataLoader with num_workers={workers}, beside the steps.",
        reason=f"The loop's header makes each batch itself: {duration(making)} of {duration(whole)}.",
        speedup=Interval(value, max(1.0, 0.85 * value), 1 / max(1 - case.shares.header, 0.02) * 1.05),
        ram_bytes=0,
        changes_training=False,
        place=lines[0].place if lines else None,
    )
