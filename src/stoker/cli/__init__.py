"""The ``stoker`` command. Thin: options in, one call, a rendering out."""

from stoker.cli._main import main

__all__ = ["main"]
