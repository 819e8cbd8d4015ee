"""Commands of the user: the modules in the subfolder `commands` of each folder in EVENHAND_PATH."""

from evenhand.evaluation.plugins import user_folders

__path__ += user_folders("commands")
