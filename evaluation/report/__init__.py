"""Scores become a report: on the terminal, as Markdown and as one HTML file that needs no network.

The same tables (`tables.py`) and sentences (`wording.py`) stand in all three.
"""

from evaluation.report.content import ReportContent, ThresholdPlan, TrainingCurve
from evaluation.report.html import html_report, write_html
from evaluation.report.markdown import markdown_report, write_markdown
from evaluation.report.terminal import print_report

__all__ = [
    "ReportContent",
    "ThresholdPlan",
    "TrainingCurve",
    "html_report",
    "markdown_report",
    "print_report",
    "write_html",
    "write_markdown",
]
