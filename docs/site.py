"""Hooks that mkdocs calls while it builds the documentation site.

README, CONTRIBUTING, CHANGELOG and all files to which a page links become pages of the site. The files keep links that
work in the repository; the hooks rewrite them for the site. The API reference has a section for each public name.
"""

import re
from os.path import relpath
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import evenhand

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
API = "# API reference\n\nEverything that `import evenhand` offers. All other names are private and may change.\n"


class FencedExamples(griffe.Extension):
    """Renders the examples of docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **arguments: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", obj.docstring.value)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text is not in `docs`."""
    sources = [(ROOT / name, page) for name, page in PAGES.items()]
    for file, page in sources:
        files.append(File.generated(config, page, content=_relinked(file.read_text(encoding="utf-8"), file, page)))
    sources += [
        (Path(str(file.abs_src_path)), file.src_uri) for file in files.documentation_pages() if file.abs_src_path
    ]
    linked = {(file.parent / link).resolve() for file, _ in sources for link in LINK.findall(file.read_text("utf-8"))}
    for file in sorted(linked):
        name = file.relative_to(ROOT).as_posix()
        if file.is_file() and not file.is_relative_to(DOCS) and name not in PAGES:
            text = file.read_text(encoding="utf-8")
            language = file.suffix.strip(".").replace("cff", "yaml")
            content = f"# {name}\n\n```` {language}\n{text}````\n"
            files.append(File.generated(config, _page_of(file), content=content))
    names = "".join(f"\n::: evenhand.{name}\n" for name in evenhand.__all__)
    files.append(File.generated(config, "api.md", content=API + names))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's text with links that lead to pages of the site."""
    file = page.file
    return _relinked(markdown, Path(file.abs_src_path), file.src_uri) if file.generated_by is None else markdown


def _relinked(text: str, file: Path, page: str) -> str:
    """Return the text of a file of the repository with links from its page of the site."""

    def link(match: re.Match[str]) -> str:
        target = _page_of((file.parent / match[1]).resolve())
        return relpath(target, Path(page).parent)

    return LINK.sub(link, text)


def _page_of(file: Path) -> str:
    """Return the path in the site of a file of the repository."""
    if file.is_dir():
        file /= "README.md"
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    name = file.relative_to(ROOT).as_posix()
    return PAGES.get(name, f"source/{name}.md")
