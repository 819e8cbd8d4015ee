"""Entry point of the command line: `python -m evenhand COMMAND …` and `evenhand COMMAND …`."""

import gc
import os
import signal
import sys

if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of other libraries would fill a log file
# Full garbage collections take a sixth of the time of importing libraries. They are rarer from here on; collections of
# new objects stay as they are.
gc.set_threshold(*gc.get_threshold()[:2], 1000)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback if Ctrl-C is pressed while modules are imported

from evenhand.recipes.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
