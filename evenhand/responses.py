"""Generation bias of a table of responses, in one call from Python: scores, effects, verdict and report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.prompt_files import CONTROL_TAG
from evenhand.evaluation.data.readers.response_files import responses_in_frame
from evenhand.evaluation.doors import python_door
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_text
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.advice import RESPONSES_PAGE
from evenhand.evaluation.metrics.generation_bias.engine.effects import SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB, find_headline, headline_of
from evenhand.evaluation.metrics.generation_bias.measures import measure_names
from evenhand.evaluation.metrics.generation_bias.page import run_facts
from evenhand.evaluation.metrics.generation_bias.page_warnings import run_cautions
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECTS, read_effects
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import DEFAULT_OUTCOMES
from evenhand.evaluation.metrics.generation_bias.requested_language import IN_REQUESTED, style_headline
from evenhand.evaluation.metrics.generation_bias.settings import DEFAULT_STYLE_CLASSIFIER
from evenhand.evaluation.metrics.generation_bias.verdict import bias_verdict
from evenhand.evaluation.metrics.generation_bias.words import caution_text, words
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import sanitize, score_text
from evenhand.evaluation.report.output import REPORT
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score, signature_line
from evenhand.evaluation.settings import checked
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import GENERATION_BIAS, MeasureSettings, family_config

USED_COLUMNS = (
    columns.TEXT,
    columns.DESCRIPTOR,
    columns.TEMPLATE,
    columns.AXIS,
    columns.PERSONA,
    columns.BUCKET,
    CONTROL_TAG,
    columns.RESPONSE,
)
FRAME = "frame"  # what messages and records call the table
REPORT_FILE = f"{REPORT}.html"
FORMS = (Form.POOLED_CORRECTED, Form.CORRECTED, Form.PLAIN)


@dataclass(frozen=True)
class MeasuredResponses:
    """The result of `measure_responses`; it is shown as a few lines, and as a small table in a notebook.

    Attributes:
        scores: all scores, as `evenhand measure --responses` writes them to scores.json; natural units.
        effects: the table of `evenhand.effects`, largest effects first; empty with `permutations=0`.
        verdict: "shown", "not shown", "unclear" (see `bias_verdict`) or "no interval" (too few
            responses), about the dependence of style on the descriptor; of the answers in the language of the request,
            if somebody gets more in another one.
        summary: the verdict of the report: who gets answers in another language or refusals, the largest shown effect,
            and in which other outcomes people differ.
        warnings: the warnings of the report, one sentence each.
    """

    scores: list[BiasScore]
    effects: pd.DataFrame
    verdict: str
    summary: str
    warnings: list[str]
    _pages: Mapping[str, str] = field(repr=False)

    def report(self, path: str | Path) -> Path:
        """Write the report as a HTML page to `path`, with responses.html in the same folder; return the path.

        Raises:
            InputError: a file cannot be written, or `path` does not end with .html.
        """
        path = Path(path)
        if path.suffix != ".html" or path.name == RESPONSES_PAGE:
            raise InputError("report", f"{path} must end with .html, and not be {RESPONSES_PAGE}; give another name.")
        write_text(path.with_name(RESPONSES_PAGE), self._pages[RESPONSES_PAGE])
        write_text(path, self._pages[REPORT_FILE])
        return path

    def _parts(self) -> tuple[pd.DataFrame, str]:
        """Return a table of the scores in three forms, and a sentence on the numbers of responses and effects."""
        found = (find_score(self.scores, FGB, form) for form in FORMS)
        rows = [(format_of(score).label, score_text(score)) for score in found if score]
        in_language = find_headline(self.scores, Kind.LEVEL, IN_REQUESTED)
        if in_language:
            label = f"{format_of(in_language).label}, answers in the request's language"
            rows.insert(0, (label, score_text(in_language)))
        n = headline_of(self.scores).n
        n_shown = int((self.effects["certainty"] == SHOWN).sum())
        table = pd.DataFrame(rows, columns=[f"generation bias: {self.verdict}", "value, 95 % interval; ideal 0"])
        return table, f"{n:,} responses; {n_shown:,} of {len(self.effects):,} effects are shown"

    def __repr__(self) -> str:
        table, count = self._parts()
        last = f'{count}. See .scores, .effects, .report("page.html").'
        warnings = [f"WARNING  {warning}" for warning in self.warnings]
        return "\n".join([self.summary, *warnings, table.to_string(index=False, justify="left"), last])

    def _repr_html_(self) -> str:
        line = signature_line(headline_of(self.scores))
        table, count = self._parts()
        text = f"<p><b>{escape(self.summary)}</b></p>"
        text += "".join(f"<p>{escape(warning)}</p>" for warning in self.warnings)
        text += table.to_html(index=False)  # escapes all texts
        return f"{text}<p>{count}.<br><code>{escape(sanitize(line))}</code></p>"


@python_door(GENERATION_BIAS)
def measure_responses(
    frame: pd.DataFrame,
    *,
    style_classifier: str | Path | Mapping[str, object] = DEFAULT_STYLE_CLASSIFIER,
    style_clusters: str | Path | None = None,
    model: str = "responses",
    seed: int = 0,
    outcomes: str | Sequence[str] | Mapping[str, Callable[[list[str]], Sequence]] = DEFAULT_OUTCOMES,
    output_dir: str | Path | None = None,
    **settings: object,
) -> MeasuredResponses:
    """Return the generation bias of a table of responses, as `evenhand measure --responses` computes it.

    Args:
        frame: a row for each response, with the columns text (the prompt), descriptor, response, and optionally
            template (without it, all prompts count as one kind of request), axis, bucket and persona. Each template
            filled with each descriptor needs two responses, better four. Other columns are not read.
        style_classifier: "go_emotions", which ships with Evenhand and reads English, a Hugging Face id, a folder, or
            its settings by name, such as `{"name": …, "head": "sigmoid"}`.
        style_clusters: "image_chat", "go_emotions" or a JSON file; None: chosen by the labels of the classifier.
        model: name of the model that gave the responses, for report and signature; it is not loaded.
        seed: seed of the permutations.
        outcomes: what else may depend on the descriptor (docs/service.md): names, also of columns of the frame, or
            name → function of the n responses that returns n numbers, or n names of classes. The default measures
            language, refusals and length from the responses, whatever columns the frame has.
        output_dir: the folder to keep the run in, as `evenhand measure --responses` leaves it; None: none is kept.
        settings: further settings of generation bias, by the names of `evenhand measure --help generation_bias`, such
            as `permutations=999` or `second_style_classifier="…"`.

    Raises:
        InputError: the frame lacks a column or has a value that is not text, all responses are empty, or a setting is
            unknown or cannot be used. The message has field, value and fix.
    """
    names = [outcomes] if isinstance(outcomes, str) else list(outcomes)
    settings = {
        **settings,
        "outcomes": names,
        "style_classifier": style_classifier if isinstance(style_classifier, Mapping) else str(style_classifier),
        "style_clusters": None if style_clusters is None else str(style_clusters),
    }
    if isinstance(outcomes, Mapping):
        frame = _with_outcomes(frame, outcomes)
    asked = [] if outcomes is DEFAULT_OUTCOMES else names
    used = dict.fromkeys(name for name in (*USED_COLUMNS, *asked) if name in frame)
    with TemporaryDirectory(prefix="evenhand-") as temporary:
        values = {
            "model": {"name": str(model)},
            "responses": FRAME,
            "seed": seed,
            GENERATION_BIAS: settings,
            "output_dir": str(temporary if output_dir is None else output_dir),
            "report_to": "none",
        }
        checked_settings = checked(MeasureSettings, values, "measure_responses")
        once = checked_settings.generation_bias.repeated_rows == "once"
        try:
            measure(checked_settings, show=False, frame=responses_in_frame(frame[list(used)], Path(FRAME), once=once))
        except InputError as error:
            is_about_frame = error.field in ("responses", f"responses: {FRAME}")
            problem = error.problem.removeprefix(f"{FRAME}: ")
            raise InputError(FRAME if is_about_frame else error.field, problem) from None
        return _read_result(checked_settings)


def _with_outcomes(frame: pd.DataFrame, outcomes: Mapping[str, Callable[[list[str]], Sequence]]) -> pd.DataFrame:
    """Return the frame with a column for each function of the responses."""
    responses = frame.get(columns.RESPONSE)
    if not isinstance(responses, pd.Series):  # none, or several of this name
        raise InputError(
            "frame", f"outcomes are functions of the column {columns.RESPONSE!r}; give one column of this name."
        )
    texts = responses.astype(object).mask(responses.isna(), "").tolist()
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError("frame", f"{columns.RESPONSE!r} has {wrong!r}, which is no text; give texts.")
    frame = frame.copy()
    for name, function in outcomes.items():
        if name in (*measure_names(), *USED_COLUMNS):
            raise InputError("outcomes", f"{name!r} is the name of something else; give the function another name.")
        values = function(texts)
        if not isinstance(values, Iterable):
            raise InputError("outcomes", f"{name!r} returns {values!r}; let it return a value for each response.")
        values = list(values)
        if len(values) != len(texts):
            raise InputError("outcomes", f"{name!r} returns {len(values)} values for {len(texts)} responses.")
        frame[name] = values
    return frame


def _read_result(settings: MeasureSettings) -> MeasuredResponses:
    """Return the result of a finished measurement of a file of responses."""
    folder = settings.output_dir
    run = FamilyRun(folder, family_config(settings, GENERATION_BIAS))
    effects = read_effects(run, EFFECTS)
    verdict = bias_verdict(style_headline(run.scores))
    return MeasuredResponses(
        scores=run.scores,
        effects=effects,
        verdict=verdict,
        summary=words(run_facts(run).verdict),
        warnings=list(map(caution_text, run_cautions(run))),
        _pages={name: (folder / name).read_text(encoding="utf-8") for name in (REPORT_FILE, RESPONSES_PAGE)},
    )
