"""Parameters of requests to a server: what the settings add, what a probe finds to be rejected, and thinking.

Providers differ in the parameters that they know: OpenAI's reasoning models reject `max_tokens`, Mistral rejects
`seed`. One probe before a run renames or leaves out what is rejected; a rejection later is an error.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from evenhand.evaluation.data.language.reasoning import strip_reasoning
from evenhand.evaluation.data.readers.answers import FILTER, Answer
from evenhand.evaluation.doors import MAX_NEW_TOKENS, spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json, JsonObject

log = logging.getLogger("evenhand")

PROBE = "Hello! How are you today?"
RENAMED = {"max_tokens": "max_completion_tokens"}  # of the reasoning models of OpenAI
FIXED = ("model", "messages", "prompt")  # parts of a request that are never left out
KEPT = (
    *FIXED,
    "max_completion_tokens",
    "continue_final_message",
    "add_generation_prompt",
    "logprobs",
    "top_logprobs",
    "echo",
)
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False}}  # as for loaded weights
THINKING_SETTINGS = ("chat_template_kwargs", "reasoning_effort", "reasoning", "thinking", "think", "extra_body")
# How providers say that they do not know a parameter, or that it has one value only.
UNKNOWN = re.compile(
    r"unsupported|not (?:be )?support|unknown|unrecogni[sz]ed|unexpected|extra[ _](?:input|field|forbidden)|forbidden"
    r"|not permitted|not allowed|not accept|not available|additional propert|only the default|deprecated|incompatible"
    r"|(?:invalid|unused|unrecognized) (?:argument|parameter|field|key)",
    re.IGNORECASE,
)
# How providers say that a value is wrong, which is for the user to mend; other words reject the parameter.
WRONG_VALUE = re.compile(
    r"\b(?:between|above|below|(?:less|greater|larger|smaller|higher|lower|more|fewer) than|at (?:most|least)"
    r"|max(?:imum)?|min(?:imum)?|exceed\w*|too (?:large|high|long|big|small|low|short)|range|positive|negative|integer"
    r"|string|boolean|type)\b|[<>≤≥]",
    re.IGNORECASE,
)
FILTER_STATUSES = (400, 403, 422)
UNAVAILABLE_FOR_LEGAL_REASONS = 451
PARAMETER_STATUSES = (400, 422, 501)
TEXT_STATUSES = (400, 413, 422)  # rejections of a text, if the server has answered another one with these parameters

Body: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[Body], Answer]  # returns the answer to one request, or raises RejectedRequest


class RejectedRequest(InputError):
    """The error that a server rejects a request.

    Attributes:
        status: the HTTP status of the answer.
        reason: its body.
        sent: the request.
    """

    def __init__(
        self, field: str, problem: str, status: int | None = None, reason: object = None, sent: JsonObject | None = None
    ) -> None:
        super().__init__(field, problem)
        self.status = status
        self.reason = reason
        self.sent = sent or {}

    @property
    def is_filter(self) -> bool:
        """Whether a filter of the provider rejected the text of the request.

        Servers repeat the request in an error (FastAPI, vLLM), so that its own words say nothing, only a code does.
        """
        if self.status == UNAVAILABLE_FOR_LEGAL_REASONS:
            return True
        if self.status not in FILTER_STATUSES:
            return False
        codes = [str(code) for name in ("code", "type") for code in _values_of(self.reason, name)]
        if any(map(FILTER.search, codes)):
            return True
        said = map(str.casefold, FILTER.findall(_as_text(self.reason or str(self))))
        asked = map(str.casefold, FILTER.findall(" ".join(_texts_in(self.sent))))
        return bool(set(said) - set(asked))

    @property
    def is_of_the_text(self) -> bool:
        """Whether the text of the request is the cause, if the server accepts the request with another text."""
        return self.status in TEXT_STATUSES


@dataclass(frozen=True)
class Parameters:
    """How requests to one server differ from OpenAI's API of chat completions.

    Attributes:
        renamed: name of a parameter → the name that the server knows.
        left_out: parameters that the server rejects.
        added: parameters that turn off thinking.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    added: JsonObject = field(default_factory=dict)

    def apply(self, body: Body) -> Body:
        """Return a request as the server accepts it."""
        kept = {self.renamed.get(name, name): value for name, value in body.items() if name not in self.left_out}
        return merge(dict(self.added), kept)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "Parameters":
        """Return the parameters that `as_values` returned."""
        return cls(values.get("renamed", {}), tuple(values.get("left_out", ())), values.get("added", {}))

    def as_values(self) -> dict[str, Json]:
        """Return the parts that are not empty, for signatures and files."""
        values = {"renamed": dict(self.renamed), "left_out": list(self.left_out), "added": dict(self.added)}
        return {name: value for name, value in values.items() if value}


def merge(first: JsonObject, second: JsonObject) -> Body:
    """Return the values of both, of which the second win; objects are merged, and null removes a value.

    >>> merge({"seed": 1, "a": {"b": 1}}, {"seed": None, "a": {"c": 2}})
    {'a': {'b': 1, 'c': 2}}
    """
    merged = dict(first)
    for name, value in second.items():
        inner = merged.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            merged[name] = merge(inner, value)
        else:
            merged[name] = value
    return {name: value for name, value in merged.items() if value is not None}


def rejected_parameter(reason: object, body: Body) -> str | None:
    """Return the parameter of a request that a provider rejects, by its error.

    None if the error names no parameter, or says which values the parameter may have.

    >>> rejected_parameter("temperature: only 1 is possible", {"temperature": 0.7, "seed": 1})
    'temperature'
    """
    names = [name for name in body if name not in FIXED]
    text = " ".join(_texts_in(reason))
    if WRONG_VALUE.search(text) and not UNKNOWN.search(text):
        return None
    for value in _values_of(reason, "param"):
        if isinstance(value, str) and value in names:
            return value
    for place in _values_of(reason, "loc"):
        found = [part for part in place if part in names] if isinstance(place, list) else []
        if found:
            return found[0]
    matches = {name: re.search(rf"\b{re.escape(name)}\b", text) for name in names}
    starts = {name: match.start() for name, match in matches.items() if match is not None}
    return min(starts, key=lambda name: (starts[name], name)) if starts else None


def _as_text(reason: object) -> str:
    return reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False, default=str)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts in nested objects and lists, without the names of values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)


def _values_of(value: object, key: str) -> Iterator[object]:
    """Yield the values of a key in nested objects and lists."""
    if isinstance(value, Mapping):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from _values_of(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _values_of(inner, key)


def settle_parameters(ask: Ask, body: Body, given: JsonObject, name: str) -> tuple[Parameters, Answer]:
    """Return the parameters that a server accepts, and its answer to the probe.

    Args:
        ask: sends one request.
        body: the probe, a request with the parameters of the run.
        given: the parameters of `model.request`, which are never left out.
        name: the name of the server and model, for the log.

    Raises:
        RejectedRequest: the server rejects the probe for another reason, or a parameter that it needs.
    """
    parameters = Parameters()
    for _ in range(len(body) + len(RENAMED)):
        sent = parameters.apply(body)
        try:
            answer = ask(sent)
        except RejectedRequest as error:
            parameters = _without_rejected(parameters, error, sent, given)
            continue
        if parameters != Parameters():
            log.warning("%s: requests are sent with %s", name, parameters.as_values())
        return parameters, answer
    raise InputError("model.server", f"{name} rejects each parameter; set model.request.")


def _without_rejected(parameters: Parameters, error: RejectedRequest, sent: Body, given: JsonObject) -> Parameters:
    """Return the parameters without the one that the server rejects; raise the error if it can not be left out."""
    rejected = rejected_parameter(error.reason, sent) if error.status in PARAMETER_STATUSES else None
    if rejected is None or rejected in given or rejected in KEPT:
        raise error
    if rejected in RENAMED:
        return replace(parameters, renamed={**parameters.renamed, rejected: RENAMED[rejected]})
    if rejected in parameters.added:
        raise error
    return replace(parameters, left_out=(*parameters.left_out, rejected))


def turn_off_thinking(
    ask: Ask, body: Body, parameters: Parameters, answer: Answer, given: JsonObject, name: str
) -> Parameters:
    """Return the parameters with which the model does not think, if its answer to the probe has reasoning.

    A model that cannot be stopped may think, if its answer comes within the tokens of the run.

    Raises:
        InputError: the tokens of the run end within the reasoning.
    """
    if not thinks(answer) or "messages" not in body:
        return parameters
    if not set(THINKING_SETTINGS) & set(given):
        quiet = replace(parameters, added=THINKING_OFF)
        try:
            second = ask(quiet.apply(body))
        except RejectedRequest:
            second = answer
        if not thinks(second):
            log.warning("%s: the model thinks, so requests are sent with %s", name, THINKING_OFF)
            return quiet
    if not (strip_reasoning(answer.text or "", answer.is_cut)[0] or "").strip():
        raise InputError("model.server", unfinished_message(name))
    log.warning("%s: the model thinks before it answers; its reasoning is no part of the responses", name)
    return parameters


def unfinished_message(name: str) -> str:
    """Return the problem of a model whose answers end within its reasoning."""
    effort = spelled("model.request", "{reasoning_effort: none}")
    template = spelled("model.request", "{chat_template_kwargs: {enable_thinking: false}}")
    return (
        f"{name}: the model thinks, and max_new_tokens ends within its reasoning. Turn it off by {effort} or "
        f"{template}, or allow more tokens by {spelled(MAX_NEW_TOKENS, '4000')}."
    )


def thinks(answer: Answer) -> bool:
    """Return whether an answer has reasoning, in its text or in a field of its own, or ended before any text."""
    return bool(answer.reasoning) or strip_reasoning(answer.text or "", answer.is_cut)[1]
