"""What a reader must know beside the verdict: what was not seen, and what the figures leave out."""

from stoker.doctor._record import Record
from stoker.doctor._words import duration, error_line, percent
from stoker.doctor.analysis._model import Model
from stoker.doctor.analysis._shares import Shares
from stoker.doctor.analysis._stages import Timing

_TOLD = frozenset({"crash", "worker died", "compile", "warning", "not observed", "throughput"})
_MOST_EVENTS = 12
_OUR_LOADER = "stoker.Loader"  # as a record names what it reads
_ACCUMULATED = 1.25  # batches a step: a framework that fetches one ahead takes two before its first step


def notes_of(
    record: Record, timing: Timing | None, shares: Shares | None, model: Model | None
) -> tuple[str, ...]:
    """In the order of their weight; each once."""
    notes = [f"Not observed: {what} ({why})." for what, why in record.not_observed.items()]
    if record.ended == "crashed" and record.error and not any(each.kind == "crash" for each in record.events):
        notes.append(f"The script crashed: {error_line(record.error)}")
    if timing is not None and shares is not None:
        notes += _on_steps(record, timing, shares)
        if model is None:
            notes.append("How batches are made was not seen: no gain of other loader settings is predicted.")
    notes += [event.text for event in record.events if event.kind in _TOLD][:_MOST_EVENTS]
    return tuple(dict.fromkeys(notes))


def _on_steps(record: Record, timing: Timing, shares: Shares) -> list[str]:
    notes = []
    waiting = timing.stages.get("wait", 0.0) / timing.whole_s
    workers = timing.loader.num_workers if timing.loader else 0
    if timing.num_steps < 20:
        notes.append(f"Only {timing.num_steps} steps after the warm-up: the figures are rough.")
    if timing.is_ceiling_limited:
        notes.append(
            "While batches were given again, the loop's own work was faster than before, as if others had "
            "left the machine: the ceiling is put at what the waiting allows."
        )
    division = timing.trial.division if timing.trial else None
    if division is not None and division.num_workers == 1 and timing.loader and workers > 1:
        notes.append(
            f"Each of the {workers} workers of {timing.loader.name!r} gives all samples of the stream, which "
            "come several times an epoch: it should divide itself by torch.utils.data.get_worker_info."
        )
    if timing.host_s is None:
        notes.append("No replay: how fast the loop would be with data at hand was not measured.")
    elif waiting - shares.waiting > 0.05:
        notes.append(
            f"The loop waits {percent(waiting)} of a step, but with data at hand it would win only "
            f"{percent(shares.waiting)}: the rest of the wait hides work that has to be done anyway."
        )
    if timing.loader is not None and timing.loader.dataset == _OUR_LOADER and "augment" not in timing.stages:
        notes.append("What a stoker.Loader does to its batches (augment=) is part of waiting for data.")
    if record.machine.device == "cpu" and workers and timing.host_s is not None:
        notes.append(
            "The model computes on the same cores as the workers: a replay frees those cores, too, so its "
            "ceiling holds for data that costs nothing to make, not for a faster loader alone."
        )
    if shares.is_crowded:
        notes.append(
            f"{percent(shares.contention)} of a step is lost because workers and model share "
            f"{record.machine.num_cores} cores."
        )
    if timing.batches_per_step > _ACCUMULATED:
        notes.append(f"A step is {timing.batches_per_step:.3g} batches (gradient accumulation).")
    if record.machine.num_torch_threads > record.machine.num_cores:
        notes.append(
            f"PyTorch computes with {record.machine.num_torch_threads} threads on "
            f"{record.machine.num_cores} cores: set torch.set_num_threads({record.machine.num_cores})."
        )
    foreign = [sum(moment.core_use) - moment.process_cpu for moment in record.moments if moment.core_use]
    if foreign and sum(foreign) / len(foreign) > 0.25 * record.machine.num_cores:
        notes.append(
            f"Other processes kept {sum(foreign) / len(foreign):.1f} cores busy meanwhile: on an idle "
            "machine the figures would be others."
        )
    validating = sum(pause.end_s - pause.begin_s for pause in record.pauses if pause.kind == "validation")
    stepping = sum(step.seconds for step in record.in_phase("normal"))
    if validating > 0.2 * (validating + stepping):
        notes.append(f"Validation took {duration(validating)} beside {duration(stepping)} of training steps.")
    return notes
