"""What a person sees of a diagnosis: a page, a terminal, and a trace for Perfetto.

_write.py      the report's files, whole or absent
_html.py       the page: its parts in order, its data, its security policy
_sections.py   verdict, key figures, stages, ceiling, causes      _advice.py   advice, before and after
_details.py    workers, lines, operators, loaders, machine, notes
_over_time.py  what the page draws over time, thinned out (pure)
_charts.py     bars as SVG                                        _markup.py   elements, always escaped
page.html, page.css, page.js                                      the page's frame, look and behaviour
over_time.js   the run over time, by hand: its scene.js, words.js, painting.js and figures.js
_terminal.py   the same for a terminal                            _words.py    how figures and stages are said
_trace.py      trace.json
"""

from stoker.doctor.report._html import render_page
from stoker.doctor.report._terminal import print_check, print_diagnosis
from stoker.doctor.report._trace import trace_events
from stoker.doctor.report._write import Paths, write_report

__all__ = ["Paths", "print_check", "print_diagnosis", "render_page", "trace_events", "write_report"]
