"""Checks the types of `evenhand` with basedpyright; `make lint` runs it.

python -m tools.type_check

The files in `clean` of pyproject.toml, `[tool.evenhand.types]`, must have no error. All other files together may have
`errors` at most: whoever mends some of them lowers the number.
"""

import json
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUBS = "pandas-stubs"  # the types of pandas; without them there are hundreds of other errors


def type_errors() -> list[tuple[str, str]]:
    """Return all errors of basedpyright, as the file, relative to the root, and the message with its line."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        raise SystemExit(f"basedpyright ended without a result:\n{done.stdout}{done.stderr}") from None
    errors = []
    for diagnostic in diagnostics:
        if diagnostic["severity"] == "error":
            file = str(Path(diagnostic["file"]).relative_to(ROOT))
            line = diagnostic["range"]["start"]["line"] + 1
            errors.append((file, f"{file}:{line}: {diagnostic['message']} ({diagnostic.get('rule')})"))
    return errors


def main() -> None:
    """Print what is wrong and end with status 1; or print the number of errors."""
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["evenhand"]["types"]
    try:
        version(STUBS)
    except PackageNotFoundError:
        raise SystemExit(f"{STUBS} is not installed; run pip install -c constraints.txt -e '.[test]'") from None
    errors = type_errors()
    in_clean_files = [message for file, message in errors if any(fnmatch(file, clean) for clean in limits["clean"])]
    n_others = len(errors) - len(in_clean_files)
    print(f"types: {len(in_clean_files)} errors in clean files; {n_others} in others, at most {limits['errors']}")
    if in_clean_files:
        raise SystemExit("\n".join(in_clean_files))
    if n_others > limits["errors"]:
        by_file = Counter(file for file, _ in errors).most_common(10)
        largest = ", ".join(f"{file} {number}" for file, number in by_file)
        raise SystemExit(f"There are new errors. `basedpyright FILE` shows them. Most are in: {largest}.")


if __name__ == "__main__":
    main()
