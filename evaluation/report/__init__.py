"""Scores become a report: on the terminal, as Markdown and as one HTML file that needs no network.

Each metric family builds a `Page` of sentences, tables and figures (`page.py`), which has the three forms. `sweep`
reports on many tuned models side by side, in the same layout.
"""

from evaluation.report.embedding_bias import embedding_page
from evaluation.report.generation_bias.content import GenerationContent, ThresholdPlan, TrainingCurve, TuningChanges
from evaluation.report.generation_bias.page import generation_page
from evaluation.report.likelihood_bias.page import likelihood_comparison_page, likelihood_page
from evaluation.report.offensiveness import offensiveness_page
from evaluation.report.page import Example, Figure, Page, Section, page_html, page_markdown, print_page, write_page
from evaluation.report.sentence_pairs.page import pair_comparison_page, pair_page
from evaluation.report.sweep.output import (
    print_sweep,
    sweep_html,
    sweep_markdown,
    write_sweep_html,
    write_sweep_markdown,
)
from evaluation.report.sweep.summary import Bar, SweepContent, pareto_front, summarise
from evaluation.report.translation_bias.page import translation_page

__all__ = [
    "Bar",
    "Example",
    "Figure",
    "GenerationContent",
    "Page",
    "Section",
    "SweepContent",
    "ThresholdPlan",
    "TrainingCurve",
    "TuningChanges",
    "embedding_page",
    "generation_page",
    "likelihood_comparison_page",
    "likelihood_page",
    "offensiveness_page",
    "page_html",
    "page_markdown",
    "pair_comparison_page",
    "pair_page",
    "pareto_front",
    "print_page",
    "print_sweep",
    "summarise",
    "sweep_html",
    "sweep_markdown",
    "translation_page",
    "write_page",
    "write_sweep_html",
    "write_sweep_markdown",
]
