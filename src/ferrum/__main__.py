"""``python -m ferrum`` is the ``ferrum`` command."""

from ferrum.cli.main import main

main()
