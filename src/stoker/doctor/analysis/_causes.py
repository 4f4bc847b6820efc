"""Who is to blame: each reason for lost time with its share of a step, and the one to name first."""

from dataclasses import dataclass

from stoker.doctor._diagnosis import WORTHWHILE, Cause
from stoker.doctor._record import Loader, Place, Record
from stoker.doctor._words import count, duration, listed, percent
from stoker.doctor.analysis._cost import Cost
from stoker.doctor.analysis._lines import Hot, where
from stoker.doctor.analysis._outlook import Outlook
from stoker.doctor.analysis._shares import Shares
from stoker.doctor.analysis._stages import Timing

_MOST = 0.5  # who holds this part of a cost is its cause
_WORTH_NAMING = 0.03  # share of a step


@dataclass(frozen=True)
class Case:
    """All that a judgement rests on."""

    record: Record
    timing: Timing
    shares: Shares
    cost: Cost | None
    outlook: Outlook | None

    @property
    def loader(self) -> Loader | None:
        return self.timing.loader


@dataclass(frozen=True)
class Blame:
    """The causes by weight, and for each kind of bottleneck the culprit by name."""

    causes: tuple[Cause, ...]
    culprits: dict[str, str]  # by verdict


def blame(case: Case) -> Blame:
    """Judge. What takes less than three hundredths of a step is not named."""
    by_verdict = {
        "input-bound": _input(case),
        "copy-bound": _copy(case),
        "python-bound": _python(case),
        "compute-bound": _compute(case),
    }
    causes = [cause for found, _ in by_verdict.values() for cause in found]
    causes = [cause for cause in causes if cause.share >= _WORTH_NAMING or cause.kind == "sync"]
    return Blame(
        causes=tuple(sorted(causes, key=lambda cause: -cause.share)),
        culprits={verdict: culprit for verdict, (_, culprit) in by_verdict.items()},
    )


def _input(case: Case) -> tuple[list[Cause], str]:
    """First the settings, if they alone explain most of the loss; then what a sample costs."""
    shares = case.shares
    settings = _settings(case)
    costs = _costs(case)
    decisive = [
        cause
        for cause in settings
        if cause.kind != "too few workers" and cause.share >= _MOST * max(shares.input, 1e-9)
    ]
    few = next((cause for cause in settings if cause.kind == "too few workers"), None)
    if shares.header > _MOST * shares.input:
        return _header(case), _header(case)[0].text
    if decisive:
        return settings + costs, max(decisive, key=lambda cause: cause.share).text
    named = costs[0] if costs and costs[0].kind != "fetch" else None
    crowd = next((cause for cause in settings if cause.kind == "oversubscribed"), None)
    if named is not None:
        more = few or crowd
        return settings + costs, named.text + (f"; {more.text}" if more else "")
    first = few or crowd or (costs[0] if costs else None)
    if first is None:
        return settings, "the data" if shares.input > _WORTH_NAMING else ""
    return settings + costs, first.text


def _header(case: Case) -> list[Cause]:
    """Data that the loop's own header makes: a generator, not a DataLoader."""
    lines = case.shares.other.header_lines
    if not lines:
        return [Cause("fetch", case.shares.header, "data made in the main process, in the loop's header")]
    first = lines[0]
    return [
        Cause(
            "fetch",
            case.shares.header,
            f"line {first.name}: data made in the main process, in the loop's header "
            f"({duration(case.shares.header * case.timing.whole_s)} of a step)",
            first.place,
        )
    ]


def _settings(case: Case) -> list[Cause]:
    """Causes that a setting of the DataLoader cures; their share is what the cure would save."""
    loader, outlook, shares = case.loader, case.outlook, case.shares
    if loader is None or outlook is None:
        return []
    place, workers, cores = loader.made_at, loader.num_workers, case.record.machine.num_cores
    found = []
    stays = loader.persistent_workers and not loader.is_made_anew
    if workers and not stays and shares.restarting > _WORTH_NAMING:
        lasts = shares.restarting * case.timing.whole_s * (case.timing.steps_per_epoch or 1)
        why = "the DataLoader is made anew" if loader.is_made_anew else "persistent_workers=False"
        text = f"worker restart at each epoch ({duration(lasts)}: {why})"
        found.append(Cause("worker restart", _saved(outlook.persistent), text, place))
    blocked = _blocked(case)
    if workers > 1 and loader.in_order and blocked > 0.05 and outlook.unordered > WORTHWHILE:
        text = (
            f"blocked head: in {percent(blocked)} of the waiting later batches lay ready behind a slow one "
            "(in_order=True)"
        )
        found.append(Cause("blocked head", _saved(outlook.unordered), text, place))
    if workers > cores and (
        outlook.fewer > WORTHWHILE or (workers >= 2 * cores and _is_processor_bound(case))
    ):
        text = f"oversubscribed: {workers} workers on {cores} core{'s' * (cores > 1)}"
        share = max(_saved(outlook.fewer), shares.contention)
        found.append(Cause("oversubscribed", share, text, place))
    if outlook.more > WORTHWHILE and _saved(outlook.more) >= 0.3 * shares.input:
        text = f"too few workers (num_workers={workers}" + (
            ": data made in the main process)" if not workers else f", {cores} cores)"
        )
        found.append(Cause("too few workers", _saved(outlook.more), text, place))
    return found


def _saved(speedup: float) -> float:
    return max(0.0, 1.0 - 1.0 / speedup)


def _blocked(case: Case) -> float:
    """Share of the waiting in which a later batch was there, but not the wanted one."""
    assert case.loader is not None
    batches = [
        batch
        for batch in case.record.batches
        if batch.loader == case.loader.name and batch.phase == "normal" and batch.was_blocked is not None
    ]
    waits = {
        id(batch): max(0.0, batch.taken_s - batch.asked_s)
        for batch in batches
        if batch.taken_s is not None and batch.asked_s is not None
    }
    total = sum(waits.values())
    if total <= 0:
        return sum(bool(batch.was_blocked) for batch in batches) / len(batches) if batches else 0.0
    return sum(waits.get(id(batch), 0.0) for batch in batches if batch.was_blocked) / total


def _is_processor_bound(case: Case) -> bool:
    return case.cost is not None and case.cost.storage_s < _MOST * case.cost.fetch_s


def _costs(case: Case) -> list[Cause]:
    """What making a batch consists of, the largest first; shares are those parts of the input's share."""
    cost, loader = case.cost, case.loader
    if cost is None or loader is None:
        return []
    found = []
    named_s = 0.0
    weight = (case.shares.input - case.shares.restarting - case.shares.header) / cost.total_s
    for name, seconds in cost.transforms.items():
        found.append(_transform(cost, name, seconds, weight))
        named_s += seconds * cost.num_samples
    rest_s = max(0.0, cost.fetch_s - named_s)
    line = _library_line(cost) if rest_s > 0 and _is_processor_bound(case) else None
    if line is not None:
        part = min(line.share * cost.fetch_s, rest_s)
        text = f"line {line.name} ({duration(part / cost.num_samples)} of {duration(cost.sample_s)} a sample)"
        found.append(Cause("host code", weight * part, text, line.place))
        rest_s -= part
    storage_s = min(rest_s, cost.storage_s)
    if storage_s > 0:
        text = (
            f"storage: {loader.dataset} waits {duration(storage_s / cost.num_samples)} of "
            f"{duration(cost.sample_s)} a sample" + (f" ({cost.lines[0].name})" if cost.lines else "")
        )
        found.append(Cause("storage", weight * storage_s, text, _own_place(cost)))
    fetch_s = rest_s - storage_s
    text = (
        f"fetch: {loader.dataset} takes {duration(fetch_s / cost.num_samples)} of "
        f"{duration(cost.sample_s)} a sample" + _at(_own_place(cost))
    )
    found += [
        Cause("fetch", weight * fetch_s, text, _own_place(cost)),
        Cause(
            "collate",
            weight * cost.collate_s,
            f"collate: {loader.collate} takes {duration(cost.collate_s)} of {duration(cost.total_s)} a batch",
            loader.made_at,
        ),
        Cause(
            "transfer",
            weight * cost.transfer_s,
            f"transfer: {duration(cost.transfer_s)} of {duration(cost.total_s)} a batch go into "
            "passing it between processes",
            loader.made_at,
        ),
    ]
    return sorted(found, key=lambda cause: -cause.share)


def _transform(cost: Cost, name: str, seconds: float, weight: float) -> Cause:
    simple = name.rsplit(".", 1)[-1]
    own = [line for line in cost.lines if simple in line.place.function or simple in line.callee]
    place = own[0].place if own else None
    at = f", {where(place)}" if place else ""
    text = f"transform {name} ({duration(seconds)} of {duration(cost.sample_s)} a sample{at})"
    return Cause("transform", weight * seconds * cost.num_samples, text, place)


def _library_line(cost: Cost) -> Hot | None:
    """A line that spends its time in a library, if it holds most of a sample and no transform's name does."""
    first = cost.lines[0] if cost.lines else None
    if first is None or first.share < 0.4 or not first.callee:
        return None
    if any(seconds > 0.3 * cost.sample_s for seconds in cost.transforms.values()):
        return None
    return first


def _own_place(cost: Cost) -> Place | None:
    return cost.lines[0].place if cost.lines else None


def _at(place: Place | None) -> str:
    return f" ({where(place)})" if place else ""


def _copy(case: Case) -> tuple[list[Cause], str]:
    share = case.shares.copy
    if share < _WORTH_NAMING:
        return [], ""
    lines = [line for line in case.record.lines if line.process == "loop" and line.stage == "copy"]
    place = max(lines, key=lambda line: line.seconds).place if lines else None
    text = f"copy to the device: {duration(share * case.timing.whole_s)} of a step{_at(place)}"
    return [Cause("copy", share, text, place)], text


def _python(case: Case) -> tuple[list[Cause], str]:
    shares, whole = case.shares, case.timing.whole_s
    found = []
    operators = case.record.operators
    if shares.operators and operators is not None:
        text = (
            f"{count(operators.per_step)} operators a step of {duration(operators.seconds_per_operator)} each"
        )
        module = max(operators.by_module.items(), key=lambda item: item[1], default=("", 0.0))
        if module[0] and module[1] > 0.3 * operators.per_step:
            each = duration(operators.seconds_per_operator)
            text = f"module {module[0]}: {count(module[1])} operators a step of {each} each"
        found.append(Cause("operators", shares.operators, text, _module_place(case, module[0])))
    if shares.host:
        lines = sorted(shares.other.host_lines + shares.other.forward_lines, key=lambda line: -line.seconds)
        seen = sum(line.seconds for line in lines)
        for line in lines[:3]:
            part = shares.host * line.seconds / seen
            text = f"line {line.name} ({duration(part * whole)} of a step)"
            found.append(Cause("host code", part, text, line.place))
        if not lines:
            text = f"the loop's own code ({duration(shares.host * whole)} of a step, no line known)"
            found.append(Cause("host code", shares.host, text))
    found.sort(key=lambda cause: -cause.share)
    culprit = found[0].text if found else ""
    if operators is not None and operators.host_syncs and case.record.machine.device != "cpu":
        calls = [f"{place} ({count(number)} a step)" for place, number in operators.host_syncs.items()]
        found.append(Cause("sync", 0.0, f"the host waits for the device at {listed(calls[:3])}"))
    return found, culprit


def _module_place(case: Case, module: str) -> Place | None:
    lines = [line for line in case.record.lines if module and line.module == module]
    return max(lines, key=lambda line: line.seconds).place if lines else None


def _compute(case: Case) -> tuple[list[Cause], str]:
    share = case.shares.compute
    if share < _WORTH_NAMING:
        return [], ""
    stages = {
        stage: seconds
        for stage, seconds in case.timing.stages.items()
        if stage in {"forward", "backward", "optimizer", "augment"} and seconds > 0
    }
    largest = sorted(stages, key=lambda stage: -stages[stage])[:2]
    parts = listed([f"{stage} {duration(stages[stage])}" for stage in largest]) if largest else ""
    text = f"the model's own computing ({parts} of a step)" if parts else "the model's own computing"
    return [Cause("compute", share, text)], text
