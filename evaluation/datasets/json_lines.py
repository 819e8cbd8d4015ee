"""Files of a JSON object a line."""

import json
from pathlib import Path
from typing import Any


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file in UTF-8; blank lines are none.

    Raises:
        OSError, ValueError: it cannot be read, is not UTF-8, or a line is no object that could be written as UTF-8.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except RecursionError:
                raise ValueError(f"line {number} is nested too deeply") from None
            if not isinstance(rows[-1], dict):
                raise ValueError(f"line {number} is no JSON object")
            if "\\u" in line:  # half a surrogate pair can be escaped, and is no text
                json.dumps(rows[-1], ensure_ascii=False).encode()
    return rows
