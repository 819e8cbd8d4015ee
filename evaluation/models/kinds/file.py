"""Responses in a file, such as from an API or logs: nothing is loaded or asked."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.response_files import (
    ResponseFile,
    match_responses,
    prompts_from_responses,
    resolve_control_tag,
)
from evenhand.evaluation.data.readers.response_logs import UNANSWERED
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.base import Model, response_batch
from evenhand.evaluation.score import display_name

log = logging.getLogger("evenhand")


OF_ANSWERS = (columns.REASONED, columns.CUT, UNANSWERED)  # columns of a file that are kept with its responses


class RecordedModel(Model):
    """A file of responses. The user names the model and its settings; they are not verified."""

    SETTING = "responses"
    can_be_asked = False

    @property
    def responses(self) -> ResponseFile:
        """The file; InputError if none is given."""
        if self.file is None:
            raise InputError("responses", f"no file is given; give {spelled('responses', 'FILE')}.")
        return self.file

    def with_settings(self, **changes: object) -> "RecordedModel":
        raise InputError("method", "it asks the model in another way, but a file has its responses; give a model.")

    @property
    def note(self) -> str:
        since = f" from {self.responses.since} on" if self.responses.since else ""
        before = f" before {self.responses.before}" if self.responses.before else ""
        return (
            f"Responses{since}{before} come from a file ({display_name(str(self.responses.path))}): its model is "
            "stated by the user and not verified. No model is loaded, so relevance and perplexity are unknown."
        )

    @property
    def without_weights(self) -> str:
        return f"the responses of {self.name} came in a file: no model is available"

    @property
    def tag(self) -> str:
        """The control tag in the file or the settings; InputError if they differ."""
        return resolve_control_tag(self.responses.columns, self._tag, self.responses.path)

    def identity(self) -> dict[str, Json]:
        _ = self.tag  # raises if the file cannot be read, or its control tag is not the configured one
        if self.responses.has_prompts:
            descriptors = set(self.responses.columns[columns.DESCRIPTOR])
            if len(descriptors) == 1:
                raise InputError(
                    "responses",
                    f"{self.responses.path}: the only descriptor is “{descriptors.pop()}”: nothing to compare it with.",
                )
        return {"model": self.name, "responses": self.responses.sha256}

    @property
    def description(self) -> dict[str, Json]:
        """What the user says about the model, and the hash of the file."""
        description = {
            "name": self.name,
            "revision": self.settings.revision,
            "system_prompt": self.settings.system_prompt,
            "control_tag": self.tag,
            "sha256": self.responses.sha256,
        }
        if self.settings.reasoning:
            description["reasoning"] = self.settings.reasoning
        if self.settings.strip:
            description["strip"] = self.settings.strip
        return description

    def facts(self) -> dict[str, Any]:
        facts = {"model": self.description, "decoding": dict(self.decoding.arguments)}
        if self.responses.has_prompts:
            facts["dataset"] = {"name": self.responses.path.name}
        return facts

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield the responses to the prompts, by their ids, in one batch; InputError if one is missing."""
        path = self.responses.path
        names = self.responses.columns
        if self.responses.has_prompts:
            names = {str(name): list(values) for name, values in prompts_from_responses(names, path).items()}
        responses = match_responses(names, prompts[columns.PROMPT_ID].tolist(), path)
        ids = list(map(str, names[columns.PROMPT_ID]))
        left_out = dict(zip(ids, names.get(columns.LEFT_OUT, ()), strict=False))
        reasons = []
        for prompt_id, response in zip(prompts[columns.PROMPT_ID], responses, strict=True):
            reason = left_out.get(prompt_id)
            reasons.append(reason if isinstance(reason, str) and not response.strip() else None)
        counts = Counter(filter(None, reasons))
        if counts:
            log.warning("responses: %s: left out: %s", path, dict(counts))
        more = {name: dict(zip(ids, names[name], strict=True)) for name in OF_ANSWERS if name in names}
        added = {name: [by_id[prompt_id] for prompt_id in prompts[columns.PROMPT_ID]] for name, by_id in more.items()}
        yield response_batch(prompts, responses, reasons, added, strip=self.settings.strip or ())
