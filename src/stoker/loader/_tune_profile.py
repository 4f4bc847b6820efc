"""Settings that were found, as a profile: YAML that says of each value why."""

import json
import textwrap
from typing import Any

from stoker.loader._tune import Tuned

_WIDTH = 100


def tuned_profile(tuned: Tuned, *, what: str) -> str:
    """A file for ``stoker train --profile``; `what` was tuned: a store, or a run's settings."""
    facts = tuned.facts
    origin = (
        f"Found by `stoker tune {' '.join(what.split())}` in {tuned.num_trials} trials, on {facts.cores} "
        f"cores with {facts.memory_bytes / (1 << 30):.1f} GiB available, for batches of {facts.batch_size} "
        f"and steps of {1000 * tuned.costs.step_s:.3g} ms. For another machine or model, tune again."
    )
    text = "#\n".join(_comment(line, "") for line in (origin, summary(tuned), *tuned.advice))
    text += "\ndata:\n  loader:\n"
    for name, value in tuned_settings(tuned).items():
        text += _comment(tuned.reasons[name], "    ") + f"    {name}: {json.dumps(value)}\n"
    return text


def tuned_settings(tuned: Tuned) -> dict[str, Any]:
    """The values that were found, those of the section ``data.loader``."""
    options = tuned.best.choice.options()
    return {name: options[name] for name in options if name in tuned.reasons}


def summary(tuned: Tuned) -> str:
    """What the settings bring, and how far the prediction was off."""
    best, default = tuned.best, tuned.default
    text = (
        f"{1000 * best.step_s:.3g} ms a step, {best.wait_s / best.step_s:.0%} of it waiting for data; "
        f"the step alone takes {1000 * tuned.costs.step_s:.3g} ms, "
        f"with the loader's defaults {1000 * default.step_s:.3g} ms."
    )
    if best.predicted_s is not None and best.error is not None:
        text += f" Predicted were {1000 * best.predicted_s:.3g} ms: {abs(best.error):.0%} off."
    return text


def _comment(text: str, indent: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    return "".join(f"{line}\n" for line in lines)
