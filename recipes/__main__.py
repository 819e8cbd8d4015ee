"""`python -m evenhand.recipes` is `evenhand`."""

import sys

from evenhand.recipes.command_line import main

if __name__ == "__main__":
    sys.exit(main())
