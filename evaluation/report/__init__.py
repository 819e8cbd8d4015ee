"""Scores become a report: on the terminal, as Markdown and as one HTML file that needs no network.

The same tables (`tables.py`) and sentences (`wording.py`) stand in all three. `sweep.py` and its fellows do so for many
tuned models side by side. The other metric families build a `Page` (`page.py`), each in the module of its name.
"""

from evaluation.report.content import ReportContent, ThresholdPlan, TrainingCurve, TuningChanges
from evaluation.report.embedding_bias import embedding_page
from evaluation.report.html import html_report, write_html
from evaluation.report.likelihood_bias import likelihood_comparison_page, likelihood_page
from evaluation.report.markdown import markdown_report, write_markdown
from evaluation.report.offensiveness import offensiveness_page
from evaluation.report.page import Example, Figure, Page, Section, page_html, page_markdown, print_page, write_page
from evaluation.report.sentence_pairs import pair_comparison_page, pair_page
from evaluation.report.sweep import Bar, SweepContent, pareto_front, summarise
from evaluation.report.sweep_output import (
    print_sweep,
    sweep_html,
    sweep_markdown,
    write_sweep_html,
    write_sweep_markdown,
)
from evaluation.report.terminal import print_report
from evaluation.report.translation_bias import translation_page

__all__ = [
    "Bar",
    "Example",
    "Figure",
    "Page",
    "ReportContent",
    "Section",
    "SweepContent",
    "ThresholdPlan",
    "TrainingCurve",
    "TuningChanges",
    "embedding_page",
    "html_report",
    "likelihood_comparison_page",
    "likelihood_page",
    "markdown_report",
    "offensiveness_page",
    "page_html",
    "page_markdown",
    "pair_comparison_page",
    "pair_page",
    "pareto_front",
    "print_page",
    "print_report",
    "print_sweep",
    "summarise",
    "sweep_html",
    "sweep_markdown",
    "translation_page",
    "write_html",
    "write_markdown",
    "write_page",
    "write_sweep_html",
    "write_sweep_markdown",
]
