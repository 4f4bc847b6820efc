"""``python -m stoker`` is the ``stoker`` command."""

from stoker.cli import main

main()
