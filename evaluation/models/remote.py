"""A model behind an API: it answers, and its weights are not available."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.asking import Parsed
from evenhand.evaluation.models.base import Model, prompt_seed, response_batch
from evenhand.evaluation.models.request_parameters import PROBE, Body, Parameters, unfinished_message
from evenhand.evaluation.models.server_client import (
    Parse,
    build_requests,
    check_client,
    continued,
    fetch_answers,
    find_parameters,
    parse_response,
    request_arguments,
)

if TYPE_CHECKING:  # takes a second
    from openai import AsyncOpenAI

FIRST_ANSWERS = 16  # a run ends if so many first answers all end within the reasoning
ANSWERED_BY = "answered_by"  # column of the responses: name of the model in the API's answer


class RemoteModel(Model):
    """A model behind an API. A new API is a class with the method `ask`."""

    scores_responses = False  # whether the settings say that the API gives likelihoods of responses
    parameters_found: Parameters | None = None

    @property
    def asked(self) -> ModelSettings:
        """The settings with the address of the server; a server that is to be started is started."""
        return self.settings

    @abstractmethod
    async def ask(self, client: "AsyncOpenAI | None", body: Body) -> Any:
        """Return the API's answer to one request.

        It may be the body of an answer in any format that a file of responses may have (`chats.answer_in`), or an
        object of the `openai` client. The request is sent again if the answer cannot be read.

        Args:
            client: a client of `model.server`, None without one. `client.post(path, body=…, cast_to=object)` sends JSON
                and returns JSON; it retries after time-outs, 429 and 5xx, and adds the key of EVENHAND_API_KEY.
            body: a request of OpenAI's chat API: model, messages, seed, and those of temperature, top_p, max_tokens and
                stop that the decoding has.

        Raises:
            MissingAnswer: a filter withheld the answer, or the request failed.
            openai.OpenAIError: the request failed; a rejected parameter is left out, if the probe finds it.
            InputError: the run must end.
        """

    @property
    def requests_per_response(self) -> int:
        return 1

    @property
    def note(self) -> str:
        likelihoods = "Scores that need the model's weights (relevance, perplexity) are omitted."
        if self.scores_responses:
            likelihoods = "Relevance and perplexity are by its log-probabilities of these responses."
        return (
            f"A server answered as {self.name}. {likelihoods} It is not verified that the server uses the seed of each "
            "request, so a second run may give other responses."
        )

    @property
    def without_weights(self) -> str:
        return f"a server answered as {self.name}: its weights are not available"

    def identity(self) -> dict[str, Json]:
        """Return the name of the model.

        Raises:
            InputError: the client is not installed, or the API has no equivalent of a decoding argument.
        """
        check_client()
        request_arguments(self.arguments)
        return {"model": self.name}

    @property
    def description(self) -> dict[str, Json]:
        """Name, revision (which the user supplies and nobody verifies), kind, and what the settings add; no address."""
        settings = self.settings
        description: dict[str, Json] = {"name": self.name, "revision": settings.revision, "api": self.api}
        for name in ("reasoning", "strip", "request", "launch", "launch_arguments"):
            value = getattr(settings, name)
            if value:
                description[name] = value
        return description

    @property
    def api(self) -> str:
        """The name of the API in signatures."""
        return self.settings.kind

    def facts(self) -> dict[str, Any]:
        """Return the entries of a signature, with the parameters that the API accepts; it may ignore the seeds."""
        facts = super().facts()
        facts["model"]["system_prompt"] = self.settings.system_prompt
        parameters = self.parameters().as_values()
        if parameters:
            facts["model"]["parameters"] = parameters
        facts["server_seed"] = {"sent": self.seed, "verified": False}
        return facts

    def fetch(
        self, bodies: Sequence[Body], parse: Parse[Parsed], on_missing: Callable[[str], Parsed] | None = None
    ) -> Iterator[tuple[list[int], list[Parsed]]]:
        """Send requests, and yield (row indices, parsed answers) as the answers arrive (`fetch_answers`)."""
        return fetch_answers(self.asked, bodies, parse, on_missing, ask=self.ask)

    def parameters(self) -> Parameters:
        """Return the parameters that the API accepts, which a probe finds once."""
        if self.parameters_found is None:
            arguments = request_arguments(self.arguments)
            (probe,) = build_requests(self.settings, [PROBE], [""], [self.seed], "", arguments)
            self.parameters_found = find_parameters(self.asked, probe, ask=self.ask)
        return self.parameters_found

    def requests(self, prompts: pd.DataFrame, tokens: range | None = None) -> list[Body]:
        """Return the body of a request for each prompt; a prompt has the same seed as with a loaded model.

        The continuation of an opening has another seed, because with the same seed a server would draw it with the
        random numbers of the opening.
        """
        limit = {} if tokens is None else {"max_new_tokens": len(tokens)}
        part = f"/{tokens.start}" if tokens is not None and tokens.start else ""
        bodies = build_requests(
            self.settings,
            prompts[columns.TEXT].tolist(),
            prompts[columns.PERSONA].tolist(),
            [prompt_seed(f"{prompt_id}{part}", self.seed) for prompt_id in prompts[columns.PROMPT_ID]],
            self.tag,
            request_arguments({**self.arguments, **limit}),
        )
        if columns.OPENING not in prompts:
            return bodies
        return [continued(body, opening) for body, opening in zip(bodies, prompts[columns.OPENING], strict=True)]

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses, and what else the answers say.

        That is whether max_tokens cut the response, the name of the model, whether it had reasoning, and why it is
        missing.
        """

        def parse(answer: Any, body: Body) -> dict[str, Any]:
            found = parse_response(answer, body, self.settings.reasoning)
            name = answer.get("model") if isinstance(answer, dict) else getattr(answer, "model", None)
            name = name if isinstance(name, str) else self.name
            return response(found.text, found.reason, found.is_cut, name, found.had_reasoning)

        def missing(reason: str) -> dict[str, Any]:
            return response("", reason, False, self.name, False)

        def response(text: str, reason: str | None, cut: bool, name: str, reasoned: bool) -> dict[str, Any]:
            return {
                columns.RESPONSE: text,
                columns.LEFT_OUT: reason,
                columns.CUT: cut,
                ANSWERED_BY: name,
                columns.REASONED: reasoned,
            }

        parameters = self.parameters()
        bodies = [parameters.apply(body) for body in self.requests(prompts, tokens)]
        n_answers = 0
        n_unfinished = 0
        for rows, answers in self.fetch(bodies, parse, missing):
            texts = [answer[columns.RESPONSE] for answer in answers]
            reasons = [answer[columns.LEFT_OUT] for answer in answers]
            names = {
                name: [answer[name] for answer in answers] for name in (columns.CUT, ANSWERED_BY, columns.REASONED)
            }
            yield response_batch(prompts.iloc[rows], texts, reasons, names, strip=self.settings.strip or ())
            n_answers += len(answers)
            n_unfinished += reasons.count(UNFINISHED_REASONING)
            if n_unfinished == n_answers >= FIRST_ANSWERS:
                raise InputError("model.server", unfinished_message(self.name))
