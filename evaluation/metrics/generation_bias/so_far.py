"""Progress of a running measurement: how many answers it has so far, and one of them.

Lines are logged only if a person watches the log: the log of a CI service gets no texts of a model. They contain no
interval, because a person who looks at 95 % intervals again and again sees a wrong one in more than 5 % of runs. The
interval of a planned look is logged by `interim_looks`.
"""

import logging
import time

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.refusals import declines
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.measures.language import request_languages
from evenhand.evaluation.metrics.generation_bias.measures.other_language import is_in_other_language
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.runs.progress import is_watched
from evenhand.evaluation.runs.tracking import Tracker

log = logging.getLogger("evenhand")

SECONDS_BEFORE = 3.0  # of the first line, so that short runs have none
SECONDS_BETWEEN = 30.0
MAX_CHARACTERS = 100  # of a text in a line


class AnswersSoFar:
    """Counts the answers of a running measurement, and logs the counts with an example every half minute.

    Only the answers of this process are counted, and none from before an interruption.
    """

    def __init__(self, prompts: pd.DataFrame, tracker: Tracker) -> None:
        """Start with no answers; `prompts` has the text of each prompt by its id."""
        self.texts = dict(zip(prompts[columns.PROMPT_ID], prompts[columns.TEXT], strict=True))
        self.languages = dict(zip(prompts[columns.PROMPT_ID], request_languages(prompts), strict=True))
        self.tracker = tracker
        self.n = 0
        self.n_refused = 0
        self.n_other_language = 0
        self.example: tuple[str, str] | None = None  # prompt and response
        self.next_line = time.monotonic() + SECONDS_BEFORE

    def add(self, batch: pd.DataFrame) -> None:
        """Count the responses of a batch, and call `show` every half minute."""
        self.n += len(batch)
        written = batch[batch[columns.RESPONSE].str.strip() != ""]
        for prompt_id, response in zip(written[columns.PROMPT_ID], written[columns.RESPONSE], strict=True):
            self.n_refused += declines(response)
            requested = self.languages[prompt_id]
            self.n_other_language += bool(requested) and is_in_other_language(response, requested)
            self.example = (self.texts[prompt_id], response)
        if time.monotonic() >= self.next_line:
            self.show()
            self.next_line = time.monotonic() + SECONDS_BETWEEN

    def show(self) -> None:
        """Log the numbers so far and an example if a person watches the log, and give both to the tracker."""
        if is_watched():
            log.info("%s", self.text())
        counts = {"answers": self.n, "in another language": self.n_other_language, "refused": self.n_refused}
        self.tracker.log_values({f"so far/{name}": value for name, value in counts.items()})
        if self.example is not None:
            prompt, response = self.example
            self.tracker.log_samples(pd.DataFrame([{columns.TEXT: prompt, columns.RESPONSE: response}]))

    def text(self) -> str:
        """Return one line: how many answers, how many in another language or refused, and one example."""
        example = None
        if self.example is not None:
            prompt, response = self.example
            example = {"prompt": _shortened(prompt), "response": _shortened(response)}
        counts = {"n": self.n, "n_other_language": self.n_other_language, "n_refused": self.n_refused}
        return words(Finding("progress", {**counts, "example": example}))


def _shortened(text: str) -> str:
    """Return the beginning of a text on one line."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
