"""`python -m evenhand COMMAND …`."""

import sys

from evenhand.recipes.command_line import main

sys.exit(main())
