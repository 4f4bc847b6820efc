"""``stoker tune``: loader settings for this machine and this step, by measuring."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli._store import Json
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.loader._tune import Choice, MakeLoader, Trial, Tuned

_CONFIGS = (".yaml", ".yml", ".json")
_DEFAULT_BATCH_SIZE = 64


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("tune")(tune)


def tune(
    what: Annotated[
        Path, typer.Argument(metavar="STORE|CONFIG", help="A store, or a run's settings (.yaml, .json).")
    ],
    step_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="How long a training step takes without data to wait for. By default that of CONFIG's "
            "model, measured; of a store 0: as fast as it can be read.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help=f"Of a store's batches (default: {_DEFAULT_BATCH_SIZE}).")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of a store; by default all of it.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override one setting of CONFIG.")
    ] = None,
    trial_s: Annotated[float, typer.Option("--trial-s", min=0.01, help="Seconds of each trial.")] = 1.0,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where the profile goes, .yaml; - prints it, and only it.")
    ] = "tuned.yaml",
    as_json: Json = False,
) -> None:
    """Find the loader's settings for this machine and this step, and write them as a profile.

    A few trials, chosen by a model of reading and stepping, not all combinations. What was found says
    why, and how far the model's prediction was off.

    [bold]Examples[/]

      stoker tune run.yaml && stoker train run.yaml --profile tuned.yaml

      stoker tune train.stoker --step-ms 12 --batch-size 128 --split train --out loader.yaml
    """
    if out != "-" and not out.endswith(_CONFIGS[:2]):
        raise UsageError(f"--out must be a .yaml file, or - to print it, got {out!r}")
    if out == "-" and as_json:
        raise UsageError("--out - and --json both want to be all that is printed; leave one out")
    if what.suffix in _CONFIGS:
        for name, value in {"--batch-size": batch_size, "--split": split}.items():
            if value is not None:
                raise UsageError(f"{name} is for a store; in {what} it is set, or by --set")
        opened = _opened_config(what, set_ or [], step_ms)
    elif set_:
        raise UsageError(f"--set is for a configuration, and {what} is none (.yaml, .json)")
    else:
        opened = _opened_store(what, split, batch_size or _DEFAULT_BATCH_SIZE, step_ms or 0.0)
    from stoker.loader._tune import tune as tune_by_trials
    from stoker.loader._tune_profile import tuned_profile

    with opened as target:
        found = tune_by_trials(target.make_loader, target.step, shuffle=target.is_shuffled, trial_s=trial_s)
    profile = tuned_profile(found, what=str(what))
    if out == "-":
        typer.echo(profile, nl=False)
        return
    Path(out).write_text(profile, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(_data(found, out, target.notes)))
    else:
        _tell(found, out, target.notes)


@dataclass(frozen=True)
class _Target:
    """What is tuned."""

    make_loader: "MakeLoader"
    step: Callable[[Any], object]
    is_shuffled: bool
    notes: tuple[str, ...] = ()


@contextmanager
def _opened_store(path: Path, split: str | None, batch_size: int, step_ms: float) -> Iterator[_Target]:
    import stoker

    store = stoker.open(path)
    data = store if split is None else store.split(split)
    yield _Target(
        lambda choice: stoker.Loader(data, batch_size, device=_device(), **choice.options()),
        _sleeping(step_ms),
        is_shuffled=True,
    )


@contextmanager
def _opened_config(path: Path, overrides: list[str], step_ms: float | None) -> Iterator[_Target]:
    from stoker.config import resolve_training
    from stoker.train._tunable import tunable

    resolved = resolve_training(path, overrides=overrides)
    loader = resolved.settings.data.loader
    own = [
        name
        for name in ("num_workers", "memory_bytes", "preload", "cache", "shuffle")
        if resolved.origins[f"data.loader.{name}"] in {"file", "--set"}
    ]
    notes = tuple(f"{path} sets data.loader.{name} itself, which wins over the profile" for name in own)
    is_shuffled = loader.shuffle is True and loader.balance is None and loader.weights is None

    def options(choice: "Choice") -> dict[str, Any]:
        found = choice.options()
        return found if is_shuffled else {name: found[name] for name in found if name != "shuffle"}

    with tunable(resolved.settings) as run:
        yield _Target(
            lambda choice: run.make_loader(options(choice)),
            run.step if step_ms is None else _sleeping(step_ms),
            is_shuffled=is_shuffled,
            notes=notes,
        )


def _sleeping(step_ms: float) -> Callable[[Any], object]:
    """A step of that length which takes no processor, as an accelerator's."""
    return lambda _: time.sleep(step_ms / 1000) if step_ms else None


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _tell(found: "Tuned", out: str, notes: tuple[str, ...]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from stoker.cli import _render
    from stoker.loader._tune_profile import summary, tuned_settings

    console = _render.console()
    table = Table("tried", "ms a step", "waiting", "predicted", box=None, pad_edge=False)
    for trial in found.trials:
        predicted = "" if trial.predicted_s is None else f"{1000 * trial.predicted_s:.3g}"
        waiting = f"{trial.wait_s / trial.step_s:.0%}"
        table.add_row(_named(trial, found), f"{1000 * trial.step_s:.3g}", waiting, predicted)
    console.print(table, highlight=False)
    console.print(f"\n{summary(found)}", highlight=False)
    for name, value in tuned_settings(found).items():
        console.print(
            f"  [bold]{name}: {json.dumps(value)}[/] ({escape(found.reasons[name])})", highlight=False
        )
    for line in (*found.advice, *notes):
        console.print(escape(line), highlight=False)
    console.print(f"profile: {escape(out)}", highlight=False)


def _named(trial: "Trial", found: "Tuned") -> str:
    if trial is found.default:
        return "the loader's defaults"
    choice = trial.choice
    extra = [f"{name} {value}" for name, value in (("cache", choice.cache), ("shuffle", choice.shuffle))]
    said = [text for text in extra if text in {"cache auto", "shuffle quasi"}]
    if choice.memory_bytes is not None:
        said.insert(0, f"{choice.memory_bytes / (1 << 20):.3g} MiB ahead")
    if choice.num_workers is not None:
        said.insert(0, f"{choice.num_workers} worker{'' if choice.num_workers == 1 else 's'}")
    return ", ".join(said) or "the defaults again"


def _data(found: "Tuned", out: str, notes: tuple[str, ...]) -> dict[str, Any]:
    from stoker.loader._tune_profile import tuned_settings

    best = found.best
    return {
        "schema_version": 1,
        "profile": out,
        "settings": tuned_settings(found),
        "reasons": found.reasons,
        "step_ms": 1000 * best.step_s,
        "starved_fraction": best.wait_s / best.step_s,
        "step_alone_ms": 1000 * found.costs.step_s,
        "default_step_ms": 1000 * found.default.step_s,
        "predicted_step_ms": None if best.predicted_s is None else 1000 * best.predicted_s,
        "prediction_error": best.error,
        "num_trials": found.num_trials,
        "trials": [
            {
                "settings": trial.choice.options(),
                "step_ms": 1000 * trial.step_s,
                "wait_ms": 1000 * trial.wait_s,
                "predicted_ms": None if trial.predicted_s is None else 1000 * trial.predicted_s,
            }
            for trial in found.trials
        ],
        "advice": list(found.advice),
        "notes": list(notes),
    }
