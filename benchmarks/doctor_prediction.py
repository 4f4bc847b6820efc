"""Does a change bring what the doctor predicted, and does `stoker fix` find the best settings?

    python benchmarks/doctor_prediction.py [--quick] [--only slow_disk,two_loaders]

The scripts are those of tests/doctor/scripts, on two cores as they are meant. Each is examined once and
fixed by what `stoker fix` does (with `--reorder` where workers divide a stream). Then every advised change
that `fix` may apply is made as a patch, applied with `git apply` to a copy, and timed beside the script as
it is: in turns, each run in a process of its own, by a clock on the optimizer and without the doctor. The
error of a prediction is that of the speed-up, relative to the achieved one. A cache is timed from the
second epoch on.

For input-bound scripts `fix` is compared with the best of all num_workers 0 to 4, prefetch_factor 2 and
4, and persistent_workers, which counts only where epochs are short enough to be timed as a whole. The
search times each setting once and then the two best again, in turns with what `fix` kept.
"""

import argparse
import functools
import itertools
import math
import multiprocessing as mp
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker
from measuring import Report, Row, interleave, misses, say
from script_clock import Window, seconds_per_step
from stoker.doctor import Advice, LoaderOverride, Overrides, Record, examine
from stoker.doctor._record import Loader
from stoker.doctor.mending._fix import Fixed, fix, merged
from stoker.doctor.mending._patch import Edit, make_patch

DOCUMENT = Path(__file__).parents[1] / "docs" / "doctor.md"
SCRIPTS = Path(__file__).parents[1] / "tests" / "doctor" / "scripts"
NUM_CORES = 2  # what the scripts are written for
_SHORT_EPOCH_S = 1.3  # so short that whole epochs are timed
_NOT_TIMED = {"emulated", "truth", "crash_in_worker", "trains_nothing"}  # no scripts, or none that finish
_RETIMED = 2  # of the search's best
_REORDERED = {"iterable_dataset"}  # `stoker fix --reorder`: what the search finds changes the order, too
_HOPELESS = 1.3  # times the best step so far: such a setting is not timed to the end

Edits = tuple[Edit, ...]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    steps: int = 60  # as `stoker fix` does by default
    warmup: int = 10
    repetitions: int = 3
    timed_s: float = 0.8
    searched_s: float = 0.4
    num_workers: tuple[int, ...] = (0, 1, 2, 3, 4)


QUICK = Sizes(steps=30, warmup=5, repetitions=1, timed_s=0.4, searched_s=0.3, num_workers=(0, 2, 4))


@dataclass
class Findings:
    """What is summed up over all scripts."""

    errors: list[float] = field(default_factory=list)  # of predictions, in per cent
    within: list[float] = field(default_factory=list)  # 1: the achieved speed-up lay in the predicted range
    reached: list[float] = field(default_factory=list)  # by fix, of the best settings


def main() -> None:
    """Measure, print, write."""
    names = [path.stem for path in sorted(SCRIPTS.glob("*.py")) if path.stem not in _NOT_TIMED]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, to try the benchmark")
    parser.add_argument("--only", default=",".join(names), help="scripts, of: %(default)s")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"there is no script {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    report, findings = Report("doctor_prediction", ("torch", "numpy", "scikit-learn")), Findings()
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="stoker-prediction-") as folder:
            script(report, findings, name, Path(folder), QUICK if options.quick else Sizes())
    if findings.errors:
        num = len(findings.errors)
        report.add("all", f"error of {num} predictions (budget 10)", findings.errors, "%")
        share = statistics.mean(findings.within)
        report.rows.append(Row("all", "achieved within the predicted range", share, "share", num, 0, 1))
    if findings.reached:
        least, most, num = min(findings.reached), max(findings.reached), len(findings.reached)
        report.rows.append(
            Row("all", "stoker fix / best settings, least (budget 0.9)", least, "ratio", num, least, most)
        )
    report.write()
    if not options.quick and len(chosen) == len(names):
        write_tables(report.rows, DOCUMENT)
    for row in filter(misses, report.rows):
        say(f"missed: {row.workload}, {row.system}: {row.value:.3g} {row.unit}")


def write_tables(rows: Sequence[Row], document: Path) -> None:
    """Put what was found between the document's marks."""
    begin, end = "<!-- predictions -->", "<!-- /predictions -->"
    before, _, rest = document.read_text().partition(begin)
    document.write_text(f"{before}{begin}\n{_tables(rows)}\n{end}{rest.partition(end)[2]}")


def _tables(rows: Sequence[Row]) -> str:
    by_script: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_script.setdefault(row.workload, {})[row.system] = row
    everything = by_script.pop("all")
    changes = ["| script | change | predicted | achieved |", "|---|---|--:|--:|"]
    fixes = [
        "| script | as it is | best of the search | `stoker fix` | fix / best |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, found in by_script.items():
        for system, row in found.items():
            change, is_predicted, _ = system.rpartition(": predicted")
            if is_predicted:
                achieved = found[f"{change}: achieved"].value
                predicted = f"{row.value:.2f} ({row.low:.2f} to {row.high:.2f})"
                changes.append(f"| `{name}.py` | {change} | {predicted} | {achieved:.2f} |")
        best = next((row for system, row in found.items() if system.startswith("best of")), None)
        if best is not None:
            kept = next(row for system, row in found.items() if system.startswith("stoker fix: "))
            ratio = next(row for system, row in found.items() if system.startswith("stoker fix / "))
            how = kept.system.removeprefix("stoker fix: ")
            fixes.append(
                f"| `{name}.py` | {found['as it is'].value:.1f} ms | {best.value:.1f} ms "
                f"| {kept.value:.1f} ms: {how} | {ratio.value:.2f} |"
            )
    said = "; ".join(f"{system}: {row.value:.3g} {row.unit}" for system, row in everything.items())
    return "\n".join([*changes, "", *fixes, "", f"{said}."])


def script(report: Report, findings: Findings, name: str, folder: Path, sizes: Sizes) -> None:
    """Everything about one script."""
    say(name)
    target = SCRIPTS / f"{name}.py"
    fixed = fix(functools.partial(examined, target, sizes), folder=SCRIPTS, may_reorder=name in _REORDERED)
    say(f"  {fixed.diagnosis.verdict}: {fixed.sentence}")
    changes = advised(fixed, may_reorder=name in _REORDERED)
    loader = next((one for one in fixed.record.loaders if one.role == "train" and one.made_at), None)
    is_starved = fixed.diagnosis.verdict == "input-bound" and loader is not None
    if not changes and not is_starved:
        return
    bench = Timing(target, folder, sizes, whole_epochs=_has_short_epochs(fixed))
    kept = fixed.best.edits if fixed.best else ()
    runs: dict[str, Edits] = {"now": ()}
    runs |= {f"advice {number}": edits for number, (_, edits) in enumerate(changes)}
    runs["fix"] = kept
    if is_starved:
        assert loader is not None
        runs |= bench.best_of_search(loader)
    times = bench.in_turns(runs)
    now_s = report.add(name, "as it is", [1e3 * each for each in times["now"]], "ms a step") / 1e3
    for number, (advice, _) in enumerate(changes):
        _compare(report, findings, name, advice, now=times["now"], changed=times[f"advice {number}"])
    if not is_starved:
        return
    searched = {named: statistics.median(times[named]) for named in runs if named.startswith("num_workers")}
    best = min(searched, key=searched.__getitem__)
    report.add(name, f"best of the search: {best}", [1e3 * each for each in times[best]], "ms a step")
    spelled = _spelled_edits(kept) or "nothing changed"
    report.add(name, f"stoker fix: {spelled}", [1e3 * each for each in times["fix"]], "ms a step")
    shares = [best_s / fixed_s for best_s, fixed_s in zip(times[best], times["fix"], strict=True)]
    findings.reached.append(report.add(name, "stoker fix / best settings (budget 0.9)", shares, "ratio"))
    say(f"  {1e3 * now_s:.1f} ms a step; fix / best {findings.reached[-1]:.2f}")


def advised(fixed: Fixed, *, may_reorder: bool) -> list[tuple[Advice, Edits]]:
    """The changes that `fix` may apply and that can be timed: the gain of a cache needs a second epoch."""
    again = {loader.name for loader in fixed.record.loaders if loader.num_epochs > 1}
    found: list[tuple[Advice, Edits]] = []
    for advice in fixed.diagnosis.advice:
        is_allowed = not advice.changes_training or (may_reorder and advice.changes_order_only)
        if not advice.settings or not is_allowed:
            continue
        edits = merged((), advice, fixed.record)
        is_new = edits not in [(), *(other for _, other in found)]
        if is_new and ("cache" not in advice.settings or advice.loader in again):
            found.append((advice, edits))
    return found


class Timing:
    """Runs of one script and of patched copies of it."""

    def __init__(self, target: Path, folder: Path, sizes: Sizes, *, whole_epochs: bool) -> None:
        self._target, self._folder, self._sizes = target, folder, sizes
        self._whole_epochs = whole_epochs
        self._copies: list[tuple[Edits, Path]] = []

    def in_turns(self, runs: Mapping[str, Edits]) -> dict[str, list[float]]:
        """Seconds a step of each, run after run; the same edits are run once a turn."""
        distinct: dict[str, Edits] = {}
        for edits in runs.values():
            if edits not in distinct.values():
                distinct[str(len(distinct))] = edits
        timed = interleave(
            {
                key: functools.partial(self.once, edits, self._sizes.timed_s)
                for key, edits in distinct.items()
            },
            self._sizes.repetitions,
        )
        same = {name: next(key for key in distinct if distinct[key] == edits) for name, edits in runs.items()}
        return {name: timed[key] for name, key in same.items()}

    def best_of_search(self, loader: Loader) -> dict[str, Edits]:
        """Time every setting once; the best ones, named."""
        assert loader.made_at is not None
        persistent = (True, False) if self._whole_epochs else (True,)
        grid: list[dict[str, Any]] = [{"num_workers": 0}] * (0 in self._sizes.num_workers)
        grid += [
            {"num_workers": workers, "prefetch_factor": depth, "persistent_workers": stays}
            for workers, depth, stays in itertools.product(
                reversed(self._sizes.num_workers), (2, 4), persistent
            )
            if workers
        ]
        seconds: dict[str, float] = {}
        found: dict[str, Edits] = {}
        for keywords in grid:
            edits = (Edit(loader.made_at.file, loader.made_at.line, keywords),)
            hopeless = _HOPELESS * min(seconds.values(), default=math.inf)
            found[_spelled(keywords)] = edits
            seconds[_spelled(keywords)] = self.once(edits, self._sizes.searched_s, hopeless_s=hopeless)
        best = sorted(found, key=seconds.__getitem__)[:_RETIMED]
        return {named: found[named] for named in best}

    def once(self, edits: Edits, seconds: float, *, hopeless_s: float = math.inf) -> float:
        """Seconds a step of one run."""
        window = Window(
            seconds,
            whole_epochs=self._whole_epochs,
            skipped_epochs=int(any(edit.is_cached for edit in edits)),
            hopeless_s=hopeless_s,
        )
        return seconds_per_step(self._copy(edits), window)

    def _copy(self, edits: Edits) -> Path:
        """The script with its patch applied, among its neighbours."""
        for known, path in self._copies:
            if known == edits:
                return path
        folder = self._folder / str(len(self._copies))
        shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        patch = make_patch(edits, folder=SCRIPTS)
        if patch.refused:
            raise RuntimeError(f"no patch for {_spelled_edits(edits)}: {'; '.join(patch.refused)}")
        if patch.text:
            depth = patch.text.partition("\n")[0].count("/")  # paths begin at the repository's root
            command = ["git", "apply", f"-p{depth}", "-"]
            subprocess.run(command, cwd=folder, input=patch.text, text=True, check=True)
        self._copies.append((edits, folder / self._target.name))
        return self._copies[-1][1]


def examined(target: Path, sizes: Sizes, edits: Edits, filling: int) -> Record:
    """What the doctor observes of a script with these edits, in a process forked from this one."""
    receiver, sender = mp.Pipe(duplex=False)
    child = mp.get_context("fork").Process(target=_examine, args=(target, sizes, edits, filling, sender))
    child.start()
    sender.close()
    try:
        record: Record = pickle.loads(receiver.recv_bytes())  # noqa: S301 - our own child's
    finally:
        child.join()
        receiver.close()
    return record


def _examine(target: Path, sizes: Sizes, edits: Edits, filling: int, sender: Connection) -> None:
    os.chdir(target.parent)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    threads = [edit.torch_threads for edit in edits if edit.torch_threads]
    loaders = tuple(
        LoaderOverride(edit.file, edit.line, dict(edit.keywords), stoker.cache if edit.is_cached else None)
        for edit in edits
    )
    settings = Overrides(loaders, torch_threads=threads[-1] if threads else None)
    record = examine([target.name], steps=sizes.steps, warmup=sizes.warmup + filling, settings=settings)
    sender.send_bytes(pickle.dumps(record))
    sys.stdout.flush()


def _compare(
    report: Report, findings: Findings, name: str, advice: Advice, *, now: list[float], changed: list[float]
) -> None:
    spelled, predicted = _spelled(advice.settings), advice.speedup
    report.rows.append(
        Row(name, f"{spelled}: predicted", predicted.value, "times", 1, predicted.low, predicted.high)
    )
    speedups = [before / after for before, after in zip(now, changed, strict=True)]
    achieved = report.add(name, f"{spelled}: achieved", speedups, "times")
    findings.errors.append(100 * abs(predicted.value / achieved - 1))
    findings.within.append(float(predicted.low <= achieved <= predicted.high))
    say(f"  {spelled}: predicted {predicted.value:.2f}, achieved {achieved:.2f}")


def _has_short_epochs(fixed: Fixed) -> bool:
    loader = next((one for one in fixed.record.loaders if one.role == "train"), None)
    if loader is None or not loader.num_batches or loader.num_epochs < 2:
        return False
    per_step = max((step.num_batches for step in fixed.record.steps), default=1)
    diagnosis = fixed.diagnosis
    step_s = diagnosis.step_s.value + diagnosis.pause_s_per_step
    return loader.num_batches / per_step * step_s <= _SHORT_EPOCH_S


def _spelled(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)


def _spelled_edits(edits: Edits) -> str:
    settings: dict[str, Any] = {}
    for edit in edits:
        settings |= dict(edit.keywords) | ({"cache": True} if edit.is_cached else {})
        settings |= {"torch_threads": edit.torch_threads} if edit.torch_threads else {}
    return _spelled(settings)


if __name__ == "__main__":
    main()
