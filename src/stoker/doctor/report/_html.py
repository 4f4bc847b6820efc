"""The page: one file that needs nothing else, neither a network nor a font.

Its security policy allows the one style and the one script by their hashes and nothing besides, so
that even markup that slipped through could neither run nor load anything.
"""

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

from stoker.doctor._diagnosis import Comparison, Diagnosis
from stoker.doctor._record import Record
from stoker.doctor.report import _advice, _details, _run, _sections
from stoker.doctor.report._markup import Html, element, join
from stoker.doctor.report._over_time import over_time
from stoker.doctor.report._words import short_command

_SCRIPTS = ["page.js", "over_time.js", "scene.js", "words.js", "painting.js", "figures.js"]
_MENU = {
    "comparison": "Before and after",
    "stages": "A step",
    "ceiling": "Ceiling",
    "advice": "What to do",
    "causes": "Causes",
    "run": "Over time",
    "data": "Samples",
    "lines": "Lines",
    "operators": "Operators",
    "loaders": "Loaders",
    "notes": "Notes",
    "machine": "Machine",
}


def render_page(record: Record, diagnosis: Diagnosis, *, comparison: Comparison | None = None) -> str:
    """The whole page as text."""
    parts = {
        "comparison": _advice.comparison(record, comparison) if comparison else None,
        "stages": _sections.stages(record, diagnosis),
        "ceiling": _sections.ceiling(record, diagnosis),
        "advice": _advice.advice(record, diagnosis),
        "causes": _sections.causes(record, diagnosis),
        "run": _run.run_over_time(record),
        "data": _details.making_data(record, diagnosis),
        "lines": _details.hottest_lines(record),
        "operators": _details.operators(record),
        "loaders": _details.loaders(record),
        "notes": _details.notes(record, diagnosis),
        "machine": _details.machine(record),
    }
    body = join(
        _sections.verdict(record, diagnosis),
        _sections.crash(record),
        _sections.key_figures(record, diagnosis),
        *parts.values(),
    )
    menu = [element("a", name, href=f"#{key}") for key, name in _MENU.items() if parts[key]]
    style, script = _resource("page.css"), "\n".join(map(_resource, _SCRIPTS))
    return Template(_resource("page.html")).substitute(
        title=join(f"{diagnosis.verdict}: {short_command(record.command, limit=60)}"),
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        command=join(short_command(record.command)),
        menu=join(*menu),
        body=body,
        data=_inert(over_time(record)),
    )


def _inert(data: dict[str, Any]) -> Html:
    """JSON that no HTML parser can mistake for the end of its element or the begin of another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _resource(name: str) -> str:
    return (files("stoker.doctor.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
