"""`python -m evenhand COMMAND …`, and the command `evenhand`."""

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules are imported ends without a traceback

from evenhand.recipes.command_line import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
