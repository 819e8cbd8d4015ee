"""Answers of models as their sources give them, and what of an answer is measured.

Servers, batches, logs and tables are read by the same rules. An answer is whole, or cut at the maximum number of
tokens, and both are measured. It is missing if its provider withheld it, the request failed, or it ended for a reason
that is not known (`files/stop_reasons.yaml`): the beginning of such an answer is no answer.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING, Markers, strip_reasoning
from evenhand.evaluation.data.language.refusals import FAILED, is_failure
from evenhand.evaluation.data.readers.cells import is_blank
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.untrusted_text import escape_hidden

STOP_REASONS = Path(__file__).resolve().parents[1] / "files" / "stop_reasons.yaml"
# reasons why an answer is left out
REFUSAL = "refusal"
FILTERED = "content_filter"
FILTER_REASONS = (FILTERED, REFUSAL)  # an answer that its provider withheld
NO_CONTENT = "no content"
NO_ANSWER = "chat without an answer"
TOOL_CALL = "call of a tool"
# What sources with an error in each row write for none.
NO_ERROR = ("false", "0", "200", "ok", "success", "no error", "[]", "{}")
MAX_REASON = 60  # characters
# How providers say that a filter of theirs rejected a text.
FILTER = re.compile(
    r"content[ _-]?(?:filter|policy|management|moderation)|contentfilter|moderat|flagged|guardrail|safety|responsible"
    r"|inappropriate|data_?inspection|prohibited_?content|violat|harmful|blocklist|blocked by",
    re.IGNORECASE,
)
# How providers say that they have too much to do, also in the words of FILTER ("violates the rate limit").
OVERLOAD = re.compile(
    r"rate[ _-]?limit|too many requests|quota|overload|time[ _-]?out|timed out|\b(?:408|429|50[0-4]|529)\b",
    re.IGNORECASE,
)

# What begins the request in errors of FastAPI and vLLM, which repeat it: its own words are no filter's.
REQUEST = re.compile(r"\binput(?:_value)?[\"'\\]*\s*[:=]")
CODE = re.compile(r"\S{1,40}")
NAMED_CODE = re.compile(r"\b\w*(?:Error|Exception|Timeout)\b|\b[45]\d\d\b")


class Ending(StrEnum):
    """What a stop reason says about an answer."""

    WHOLE = "whole"
    CALL = "call"  # of a tool
    CUT = "cut"
    WITHHELD = "withheld"
    FAILED = "failed"
    UNKNOWN = "unknown"


@cache
def _endings() -> dict[str, Ending]:
    """Return the ending of each known stop reason, by its letters and digits."""
    endings = {}
    for ending, words in read_yaml(STOP_REASONS, "stop reasons").items():
        for word in words:
            endings[_letters(word)] = Ending(ending)
    return endings


def _letters(word: str) -> str:
    return re.sub(r"[\W_]+", "", word.rpartition(".")[2].casefold())


def ending_of(stop: str) -> Ending:
    """Return what a stop reason says about its answer; an answer without a stop reason counts as whole.

    >>> [str(ending_of(stop)) for stop in ("", "FinishReason.STOP", "max-tokens", "SAFETY", "error", "OTHER")]
    ['whole', 'whole', 'cut', 'withheld', 'failed', 'unknown']
    """
    return _endings().get(_letters(stop), Ending.UNKNOWN) if stop.strip() else Ending.WHOLE


@dataclass(frozen=True)
class Answer:
    """A text that a model wrote.

    Attributes:
        text: the text without the parts that are reasoning; None if there is none.
        stop: why the text ended, in the words of its source, "" if that is unknown.
        refusal: a refusal in a separate field, "" if there is none.
        reasoning: reasoning in a separate field or in separate parts, "" if there is none.
        error: the reason why there is no answer, if its source has an error (`error_reason`), else "".
    """

    text: str | None
    stop: str = ""
    refusal: str = ""
    reasoning: str = ""
    error: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the maximum number of tokens ended the text."""
        return ending_of(self.stop) == Ending.CUT

    @property
    def has_failed(self) -> bool:
        """Whether the request failed, so that asking again may help."""
        if self.error:
            return self.error not in FILTER_REASONS
        return ending_of(self.stop) == Ending.FAILED

    @property
    def missing(self) -> str | None:
        """The reason why the answer is not measured, if its source says one; None otherwise."""
        if self.error:
            return self.error
        ending = ending_of(self.stop)
        if ending == Ending.WITHHELD:
            return REFUSAL if _letters(self.stop) in ("refusal", "refused") else FILTERED
        if ending == Ending.FAILED:
            return short_reason(f"failed: {self.stop}")
        if ending == Ending.UNKNOWN:
            return short_reason(f"unknown stop reason {self.stop}")
        if (self.text or "").strip():
            return None
        if self.refusal:
            return REFUSAL
        return TOOL_CALL if ending == Ending.CALL else None


@dataclass(frozen=True)
class MeasuredAnswer:
    """What of an answer is measured.

    Attributes:
        text: the text without outer white space and reasoning, "" if the answer is missing or empty.
        reason: the reason why the answer is missing, None for an answer.
        is_cut: whether the maximum number of tokens ended the answer.
        had_reasoning: whether there was reasoning.
    """

    text: str
    reason: str | None
    is_cut: bool
    had_reasoning: bool


def measured_answer(answer: Answer, markers: Markers = None) -> MeasuredAnswer:
    """Return what of an answer is measured; `markers` are those of reasoning, if they are not known ones.

    >>> measured_answer(Answer("<think>So …</think> Hi.")).text, measured_answer(Answer("I am so", stop="error")).reason
    ('Hi.', 'failed: error')
    """
    text, had_reasoning = strip_reasoning(answer.text or "", answer.is_cut, markers, bool(answer.reasoning))
    reason = answer.missing
    if reason is None and text is None:
        reason = UNFINISHED_REASONING
    if reason is None and text and is_failure(text):
        reason = FILTERED if FILTER.search(text) else FAILED
    return MeasuredAnswer("" if reason else text or "", reason, answer.is_cut, had_reasoning)


def is_withheld(reason: object) -> bool | None:
    """Return whether an answer was withheld by its provider, by the reason why it is left out, if it is.

    None if something else took its place, such as a failed request: nobody knows whether it would have been withheld.

    >>> is_withheld("content_filter"), is_withheld(None), is_withheld("no content"), is_withheld("failed: status 500")
    (True, False, False, None)
    """
    if reason in FILTER_REASONS:
        return True
    return None if isinstance(reason, str) and reason and reason != NO_CONTENT else False


def error_reason(error: object) -> str:
    """Return why an answer is missing, by the error in a body or a row; "" if there is no error.

    The provider's message is no part of the reason, since it may name the single request, and neither is a request that
    it repeats.

    >>> error_reason({"message": "Provider returned error", "code": 429}), error_reason({"code": "content_filter"})
    ('error 429', 'content_filter')
    >>> error_reason({"code": "content_filter", "message": "Filtered after 500 tokens."})
    'content_filter'
    >>> error_reason({"code": 400, "message": "seed is not permitted, 'input': 'Is my workplace a safety risk?'"})
    'error 400'
    """
    try:
        if _says_no_error(error):
            return ""
        name = _error_name(error)
        text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False, default=str)
    except RecursionError:  # hundreds of errors in errors
        return "error"
    said = REQUEST.split(text)[0]
    for part in (name, said):  # a code says more than a message, which may contain any number
        if FILTER.search(part) and not OVERLOAD.search(part):
            return FILTERED
    return short_reason(f"error {name}".strip())


def _says_no_error(error: object) -> bool:
    """Return whether an error, or every value in it, is a word or a number for none.

    >>> [
    ...     _says_no_error(error)
    ...     for error in ({"code": 0, "message": "success"}, {"code": 200}, {"code": None, "type": "x"})
    ... ]
    [True, True, False]
    """
    if isinstance(error, Mapping):
        return all(map(_says_no_error, error.values()))
    return not error or is_blank(error) or str(error).strip().casefold() in NO_ERROR


def _error_name(error: object) -> str:
    """Return the code or type in an error; of a text the code in it, since a sentence may name the single request.

    >>> _error_name("APITimeoutError: no answer to Ann"), _error_name("server_error"), _error_name("Ann is ill")
    ('APITimeoutError', 'server_error', '')
    """
    if isinstance(error, str):
        found = CODE.fullmatch(error.strip()) or NAMED_CODE.search(error) or OVERLOAD.search(error)
        return found[0] if found else ""
    if not isinstance(error, Mapping):
        return ""
    if isinstance(error.get("error"), Mapping):
        return _error_name(error["error"])
    names = [error.get(name) for name in ("code", "type", "status")]
    return next((str(name) for name in names if isinstance(name, (str, int)) and name), "")


def short_reason(reason: str) -> str:
    """Return a reason why an answer is left out, on one line, in MAX_REASON visible characters at most."""
    return escape_hidden(" ".join(reason.split()))[:MAX_REASON]
