"""What to paste: a line of Markdown with the headline and its signature, and an entry for BibTeX."""

import re
from importlib.metadata import version

from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.page import Page


def markdown_line(page: Page) -> str:
    """Return the headline of a page in one line of Markdown, with the signature of what was measured.

    >>> markdown_line(Page("Pairs", "gpt2", "2026-01-31", "55 %", "of pairs", "", signature_lines=["cps|m:gpt2"]))
    '**Pairs**, gpt2: 55 % of pairs (2026-01-31; `cps|m:gpt2`)'
    """
    signatures = "".join(f"; `{visible(line).replace('`', '')}`" for line in page.signature_lines)
    words = (re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", visible(it)) for it in (page.title, page.subtitle))
    title, subtitle = words
    return f"**{title}**, {subtitle}: {visible(page.big)} {visible(page.under)} ({visible(page.date)}{signatures})"


def bibtex(page: Page) -> str:
    """Return an entry for the version of Evenhand that made the page."""
    made = version("evenhand")
    lines = (
        "@software{evenhand,",
        "  title = {Evenhand: measuring and mitigating demographic bias of language models},",
        "  author = {{The Evenhand authors}},",
        f"  version = {{{made}}},",
        f"  year = {{{visible(page.date[:4])}}},",
        "}",
    )
    return "\n".join(lines)
