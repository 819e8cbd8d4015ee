"""Citations of a report as a line of Markdown with headline and signature, and as a BibTeX entry."""

import re
from importlib.metadata import version

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page


def markdown_line(page: Page) -> str:
    """Return the headline of a page, with the signatures of the page's scores, as one line of Markdown.

    >>> markdown_line(Page("Pairs", "gpt2", "2026-01-31", "55 %", "of pairs", "", signature_lines=["cps|m:gpt2"]))
    '**Pairs**, gpt2: 55 % of pairs (2026-01-31; `cps|m:gpt2`)'
    """
    signatures = "".join(f"; `{sanitize(line).replace('`', '')}`" for line in page.signature_lines)
    title, subtitle = (
        re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", sanitize(line)) for line in (page.title, page.subtitle)
    )
    headline = f"{sanitize(page.headline_value)} {sanitize(page.headline_caption)}"
    return f"**{title}**, {subtitle}: {headline} ({sanitize(page.date)}{signatures})"


def bibtex(page: Page) -> str:
    """Return a BibTeX entry for the installed version of Evenhand."""
    lines = (
        "@software{evenhand,",
        "  title = {Evenhand: measuring and mitigating demographic bias of language models},",
        "  author = {{The Evenhand authors}},",
        f"  version = {{{version('evenhand')}}},",
        f"  year = {{{sanitize(page.date[:4])}}},",
        "}",
    )
    return "\n".join(lines)
