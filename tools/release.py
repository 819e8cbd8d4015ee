"""Prepares a checkout for its upload to PyPI: versions agree, and links of the README lead to the repository.

$ python tools/release.py --tag v0.3.0 --repository https://github.com/OWNER/NAME

A README on PyPI has no files beside it, so relative links are made absolute. The addresses of the project are added to
pyproject.toml. Both files are changed in place: run it in a checkout that only builds.
"""

import argparse
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)(?P<path>[^)#]+)(?P<heading>#[^)]*)?\)")


def check_version(tag: str, root: Path = ROOT) -> str:
    """Return the version of a release, which pyproject.toml contains.

    Raises:
        SystemExit: the tag, CITATION.cff or the first heading of CHANGELOG.md has another version.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    heading = re.search(r"^## (\S+)( \(unreleased\))?", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    found = {
        "the tag": tag.removeprefix("v"),
        "CITATION.cff": cited[1] if cited else "none",
        "CHANGELOG.md": heading[0].removeprefix("## ") if heading else "none",
    }
    wrong = [f"{place} has {other}" for place, other in found.items() if other != version]
    if wrong:
        raise SystemExit(f"pyproject.toml has version {version}, but {'; '.join(wrong)}. Make them equal.")
    return version


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose relative links lead to the files of a tag; pictures lead to the files themselves."""

    def absolute(link: re.Match) -> str:
        kind = "raw" if link["path"].endswith((".png", ".svg")) else "blob"
        return f"]({repository}/{kind}/{tag}/{link['path']}{link['heading'] or ''})"

    return RELATIVE_LINK.sub(absolute, text)


def project_urls(repository: str, tag: str) -> str:
    """Return the table of addresses for pyproject.toml."""
    lines = [
        "[project.urls]",
        f'Repository = "{repository}"',
        f'Documentation = "{repository}/tree/{tag}/docs"',
        f'Changelog = "{repository}/blob/{tag}/CHANGELOG.md"',
        f'Issues = "{repository}/issues"',
    ]
    return "\n".join(lines) + "\n\n"


def main() -> None:
    """Check the versions, and write README.md and pyproject.toml."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--repository", required=True)
    arguments = parser.parse_args()
    check_version(arguments.tag)
    readme = ROOT / "README.md"
    readme.write_text(
        absolute_links(readme.read_text(encoding="utf-8"), arguments.repository, arguments.tag), encoding="utf-8"
    )
    project = ROOT / "pyproject.toml"
    table = project_urls(arguments.repository, arguments.tag)
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace("[project.scripts]\n", f"{table}[project.scripts]\n", 1), encoding="utf-8")


if __name__ == "__main__":
    main()
