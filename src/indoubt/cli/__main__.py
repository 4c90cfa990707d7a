"""``python -m indoubt.cli`` is ``indoubt``."""

from . import main

main()
