"""What to change, ranked by what it brings; nothing that brings less than three per cent."""

from dataclasses import replace
from typing import Any

from stoker.doctor._diagnosis import WORTHWHILE, Advice, Interval, Verdict
from stoker.doctor._record import Loader
from stoker.doctor._words import duration, listed, percent
from stoker.doctor.analysis._causes import Blame, Case
from stoker.doctor.analysis._forecast import Forecast, forecast
from stoker.doctor.analysis._loop_remedies import loop_remedies
from stoker.doctor.analysis._model import Model, Setting
from stoker.doctor.analysis._outlook import Outlook
from stoker.doctor.analysis._remedies import cached_setting, data_remedies

_CACHE_MUST_BEAT = 1.1  # by how much, before memory is spent on what settings do nearly as well


def advise(case: Case, blamed: Blame, model: Model | None, verdict: Verdict) -> tuple[Advice, ...]:
    """All that is worthwhile, the best first. The one with key "settings" is the best safe combination."""
    found = []
    predicted = forecast(model, case.timing) if model is not None else None
    if predicted is not None and case.outlook is not None and case.loader is not None:
        found += _loader_settings(case, predicted, case.outlook, case.loader)
        found += data_remedies(case, blamed, predicted)
    found += loop_remedies(case, blamed, predicted, verdict)
    worthwhile = [advice for advice in found if advice.speedup.value >= WORTHWHILE]
    return tuple(sorted(worthwhile, key=lambda advice: (-advice.speedup.value, advice.key != "settings")))


def _loader_settings(case: Case, predicted: Forecast, outlook: Outlook, loader: Loader) -> list[Advice]:
    now = predicted.model.present
    best, settings = outlook.best, keywords(loader, now, outlook.best)
    speedup = predicted.speedup(best) if best != now else Interval(1.0, 1.0, 1.0)
    cached = cached_setting(case, predicted.model)
    ram = outlook.ram_bytes(now, best)
    if cached is not None and loader.num_epochs > 1:
        with_cache = min(
            (
                replace(cached.setting, num_workers=workers)
                for workers in {0, now.num_workers, best.num_workers}
            ),
            key=predicted.model.step_s,
        )
        gain = predicted.model.speedup(with_cache)
        if gain > _CACHE_MUST_BEAT * speedup.value:
            best, speedup = with_cache, predicted.speedup(with_cache)
            settings = keywords(loader, now, best) | {"cache": True}
            ram = outlook.ram_bytes(now, best) + cached.num_bytes
    best, speedup, settings = _with_threads(case, predicted, best, speedup, settings)
    found = []
    if speedup.value >= WORTHWHILE and settings != {"cache": True}:  # which is an advice of its own
        found.append(
            Advice(
                key="settings",
                action=f"Set {_spelled(settings)} for the loader {loader.name!r}.",
                reason=_why(case, predicted.model, best),
                speedup=speedup,
                ram_bytes=ram,
                changes_training=False,
                settings=settings,
                loader=loader.name,
                place=loader.made_at,
            )
        )
    singles = _single_settings(case, predicted, outlook, loader)
    found += [advice for advice in singles if advice.settings != settings]
    return found + (_made_once(predicted, outlook, loader, speedup.value) if loader.is_made_anew else [])


def _made_once(predicted: Forecast, outlook: Outlook, loader: Loader, reached: float) -> list[Advice]:
    """One DataLoader for all epochs, if that brings more than settings of one for each."""
    anew, setting = predicted.model, outlook.best_once
    once = replace(predicted, model=replace(anew, restarts=False))
    saved = anew.step_s(anew.present) / once.model.step_s(anew.present)
    found = once.speedup(setting)
    speedup = Interval(found.value * saved, found.low * saved, found.high * saved)
    if speedup.value < WORTHWHILE * reached:
        return []
    spelled = _spelled(keywords(loader, anew.present, setting))
    workers = (
        "its workers start anew, too" if anew.present.num_workers else "workers would have to start, too"
    )
    return [
        Advice(
            key="one loader",
            action="Make the DataLoader once, before the loop over epochs"
            + (f", with {spelled}." if spelled else "."),
            reason=f"It is made anew for each epoch, in which {workers}.",
            speedup=speedup,
            ram_bytes=outlook.ram_bytes(anew.present, setting),
            changes_training=False,
            loader=loader.name,
            place=loader.made_at,
        )
    ]


def _with_threads(
    case: Case, predicted: Forecast, best: Setting, speedup: Interval, settings: dict[str, Any]
) -> tuple[Setting, Interval, dict[str, Any]]:
    """Fewer threads for the model where they and the workers get in each other's way."""
    model, machine = predicted.model, case.record.machine
    if best.num_workers and machine.device == "cpu" and model.loop.drag > 1.3 and model.loop.demand > 1.1:
        tried = [
            replace(best, torch_threads=threads)
            for threads in {1, max(1, machine.num_cores - best.num_workers)}
            if threads < machine.num_torch_threads
        ]
        fewer = min(tried, key=model.step_s, default=best)
        if model.speedup(fewer) > 1.05 * speedup.value:
            return fewer, predicted.speedup(fewer), settings | {"torch_threads": fewer.torch_threads}
    if settings and machine.num_torch_threads > machine.num_cores:
        return best, speedup, settings | {"torch_threads": machine.num_cores}
    return best, speedup, settings


def _single_settings(case: Case, predicted: Forecast, outlook: Outlook, loader: Loader) -> list[Advice]:
    now = predicted.model.present
    found = []

    def add(key: str, setting: Setting, reason: str, *, reorders: bool = False) -> None:
        settings = keywords(loader, now, setting)
        found.append(
            Advice(
                key=key,
                action=f"Set {_spelled(settings)} for the loader {loader.name!r}.",
                reason=reason,
                speedup=predicted.speedup(setting),
                ram_bytes=outlook.ram_bytes(now, setting),
                changes_training=reorders,
                settings=settings,
                loader=loader.name,
                place=loader.made_at,
                changes_order_only=reorders,
            )
        )

    if outlook.by_workers:
        top = max(outlook.by_workers.values())
        workers = min(count for count, speedup in outlook.by_workers.items() if speedup * 1.025 >= top)
        if workers != now.num_workers and top >= WORTHWHILE:
            setting = predicted.model.with_workers(workers, may_stay=not now.num_workers)
            add("num_workers", setting, _why(case, predicted.model, setting))
    if outlook.by_prefetch and max(outlook.by_prefetch.values()) >= WORTHWHILE:
        top = max(outlook.by_prefetch.values())
        depth = min(depth for depth, speedup in outlook.by_prefetch.items() if speedup * 1.01 >= top)
        add("prefetch_factor", replace(now, prefetch_factor=depth),
            "Batches take unevenly long; a deeper queue evens them out.")  # fmt: skip
    if outlook.persistent >= WORTHWHILE and not (now.persistent_workers or loader.is_made_anew):
        add("persistent_workers", replace(now, persistent_workers=True),
            f"Workers start anew with each epoch: {duration(case.timing.pause_s)} of a step.")  # fmt: skip
    if outlook.unordered >= WORTHWHILE:
        add("in_order", replace(now, in_order=False),
            "Slow batches hold up those behind them. The order of batches then depends on timing.",
            reorders=True)  # fmt: skip
    division = case.timing.trial.division if case.timing.trial else None
    if division is not None and outlook.best_divided.num_workers != outlook.best.num_workers:
        seen = "its" if division.is_whole else "the first"
        smaller = ", and the last batch of each may be smaller" if loader.batch_size else ""
        add("divided stream", outlook.best_divided,
            f"{loader.dataset} divides itself among workers: {seen} {division.num_samples:,} samples came "
            f"once each. Their order changes{smaller}.", reorders=True)  # fmt: skip
    return found


def keywords(loader: Loader, now: Setting, setting: Setting) -> dict[str, Any]:
    """The DataLoader's arguments that make the difference; those that workers need fall with them."""
    found: dict[str, Any] = {}
    if setting.num_workers != now.num_workers:
        found["num_workers"] = setting.num_workers
    if not setting.num_workers:
        if now.num_workers:  # a DataLoader without workers refuses both
            found["prefetch_factor"] = None
        if loader.persistent_workers:
            found["persistent_workers"] = False
        return found
    if setting.prefetch_factor != now.prefetch_factor:
        found["prefetch_factor"] = setting.prefetch_factor
    if setting.persistent_workers != loader.persistent_workers:
        found["persistent_workers"] = setting.persistent_workers
    if setting.in_order != now.in_order:
        found["in_order"] = setting.in_order
    return found


def _spelled(settings: dict[str, Any]) -> str:
    return listed([f"{name}={value}" for name, value in settings.items()])


def _why(case: Case, model: Model, setting: Setting) -> str:
    now, cores = model.present, model.num_cores
    waiting = sum(wait for wait, _ in model.jobs) / len(model.jobs) * model.job_scale
    computing = sum(cpu for _, cpu in model.jobs) / len(model.jobs) * model.job_scale
    costs = (
        f"A batch takes {duration(computing)} on a processor and {duration(waiting)} of waiting, "
        f"the loop {duration(model.loop.seconds)} for it"
    )
    if setting.num_workers > now.num_workers:
        made = "in the loop itself" if not now.num_workers else f"by {now.num_workers} worker(s)"
        return f"{costs}; it is made {made}, and {cores} cores are there."
    if not setting.num_workers and model.opening_s > computing + waiting:
        opening = f"what one process opens once, in {duration(model.opening_s)}"
        return f"{costs}; each epoch's new workers open anew {opening}."
    if setting.num_workers < now.num_workers:
        return f"{costs}; {now.num_workers} workers and the loop compete for {cores} cores."
    if setting.kept < 1:
        return f"{costs}; a sample is the same each time, so it need be made only once."
    return f"{costs}; {percent(case.shares.starved)} of the time goes into waiting."
