"""The report as one HTML file that needs no network, no script and no other file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from evaluation.files import write_text
from evaluation.report import changes, plots, tables, wording
from evaluation.report.comparison import UNIT, visible
from evaluation.report.content import ReportContent

SAMPLES_SHOWN = 6  # the rest can be unfolded


def write_html(path: Path, content: ReportContent) -> None:
    """Write the report; the same content gives the same bytes.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, html_report(content))


def html_report(content: ReportContent) -> str:
    """Return the page; whatever a model or a file supplied is escaped, and hidden characters in it are written out."""
    environment = page_environment()
    samples = [] if content.samples is None else content.samples.to_dict("records")
    big, under = wording.headline(content)
    return environment.get_template("report.html.j2").render(
        content=content,
        css=plots.style(),
        **_changes(content),
        unit=UNIT,
        big=unbroken(big),
        under=unbroken(under),
        verdict=unbroken(wording.verdict(content)),
        warnings=[unbroken(visible(warning)) for warning in wording.warnings(content)],
        cost=unbroken(wording.cost_sentence(content)),
        permutation=unbroken(wording.permutation_note(content)),
        interval_in_words=unbroken(wording.INTERVAL_IN_WORDS),
        glossary=wording.GLOSSARY,
        limits=wording.LIMITS,
        headline=tables.headline_table(content),
        further=tables.further_table(content),
        costs=tables.cost_table(content),
        style_shares=tables.style_share_table(content),
        clusters=tables.cluster_tables(content),
        other_clusters=tables.other_tables(content, "cluster"),
        axes=tables.axis_tables(content),
        other_axes=tables.other_tables(content, "axis"),
        styles=tables.style_table(content),
        truth=tables.truth_table(content),
        plan=tables.plan_table(content),
        plan_panels=plots.plan_panels(content.threshold_plan) if content.threshold_plan else [],
        descriptors=tables.descriptor_tables(content),
        training_panels=plots.training_panels(content.training) if content.training else [],
        samples=samples[:SAMPLES_SHOWN],
        more_samples=samples[SAMPLES_SHOWN:],
        signature=signature_rows(content.signature),
    )


def _changes(content: ReportContent) -> dict[str, Any]:
    """Return what the sections on what tuning changed show."""
    corpus = content.changes.corpus
    own_phrases, other_phrases = changes.phrase_tables(content)
    shown = {
        "style_changes": changes.style_change_table(content),
        "moved": changes.moved_table(content),
        "phrases": own_phrases,
        "other_phrases": other_phrases,
        "parroting": changes.parroting_table(content),
        "parroting_sentence": unbroken(changes.parroting_sentence(content)),
    }
    return {
        **shown,
        "changed": bool(shown["style_changes"].rows or own_phrases or other_phrases or shown["parroting_sentence"]),
        "corpus_panels": [] if corpus is None or corpus.empty else plots.corpus_panels(corpus),
        "corpus_sentence": changes.corpus_sentence(content),
        "frequency": changes.frequency_table(content),
        "sample_groups": changes.sample_groups(content),
    }


def page_environment() -> Environment:
    """Return what templates are filled in with: everything escaped, a name that is not there an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.globals |= {"row_scale": plots.row_scale, "row_plot": plots.row_plot, "row_ticks": plots.row_ticks}
    environment.globals["zip"] = zip
    return environment


def unbroken(sentence: str) -> str:
    """Return a sentence that does not begin a line with the unit of a number."""
    return re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sentence)


def signature_rows(signature: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a nested signature as (dotted name, value) rows, in the order given."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((visible(dotted), visible(str(value))))
    return rows
