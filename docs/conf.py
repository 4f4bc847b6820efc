"""The documentation as a site: `make docs`."""

import stoker

project = "Stoker"
author = "the Stoker authors"
project_copyright = "2026, the Stoker authors"
version = release = stoker.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Class attributes", "params_style")]

html_theme = "furo"
html_title = "Stoker"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b8362a", "color-brand-content": "#b8362a"},
    "dark_css_variables": {"color-brand-primary": "#ff8a73", "color-brand-content": "#ff8a73"},
}


def _keep_drawings(_app, what, name, _object, _options, lines: list[str]) -> None:
    """Indented paragraphs of our docstrings are drawings and code: say so in reStructuredText.

    Of a package only the first sentence is for its users; its map of private files is not.
    """
    if what == "module" and name != "stoker.errors":
        del lines[next((number for number, line in enumerate(lines) if not line.strip()), len(lines)) :]
    for number in range(len(lines) - 1, 1, -1):
        begins = lines[number].startswith("    ") and not lines[number - 1].strip()
        above = next((line for line in reversed(lines[: number - 1]) if line.strip()), "")
        if begins and above and not above.startswith(" ") and not above.endswith(":"):
            lines[number:number] = ["::", ""]


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _keep_drawings, priority=400)
