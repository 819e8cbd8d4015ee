"""Write docs/dependencies.md: each dependency in pyproject.toml, with the reason in the line's comment.

$ .venv/bin/python docs/dependencies.py
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r' +"([\w-]+)(?:\[\w+\])?([^"]*)",(?:  # (.+))?')
BEGINS = re.compile(r"([\w-]+) = \[")
HEAD = """# Dependencies

The installed packages and their purposes. `python docs/dependencies.py` writes this page from pyproject.toml;
constraints.txt has the tested versions. `pip install evenhand[EXTRA]` installs an extra.
"""


def page() -> str:
    """Return the page: a table of the required packages, and a table for each extra."""
    tables: dict[str, str] = {}
    for extra, name, versions, reason in declared():
        title = f"## Extra `{extra}`" if extra else "## Always"
        head = f"\n{title}\n\n| package | versions | why |\n| --- | --- | --- |\n"
        tables[extra] = tables.get(extra, head) + f"| {name} | `{versions}` | {reason} |\n"
    return HEAD + "".join(tables.values())


def declared() -> Iterator[tuple[str, str, str, str]]:
    """Yield extra ("" for none), name, versions and reason of each dependency in pyproject.toml."""
    extra = None
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("[tool"):
            return
        if begins := BEGINS.fullmatch(line):
            extra = {"dependencies": "", "classifiers": None}.get(begins[1], begins[1])
        elif extra is not None and (found := LINE.fullmatch(line)):
            yield extra, found[1], found[2], found[3] or ""


if __name__ == "__main__":
    (ROOT / "docs" / "dependencies.md").write_text(page(), encoding="utf-8")
