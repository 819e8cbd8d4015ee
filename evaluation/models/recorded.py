"""Responses in a file, such as from an API or logs: nothing is loaded or asked."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.data.response_files import (
    RESPONSE_COLUMNS,
    drop_repeated_rows,
    match_responses,
    prompts_from_responses,
    read_responses,
    resolve_control_tag,
)
from evenhand.evaluation.data.response_logs import UNANSWERED
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.base import Model, response_batch
from evenhand.evaluation.score import CUT, DESCRIPTOR, LEFT_OUT, PROMPT_ID, REASONED, display_name
from evenhand.evaluation.settings import DecodingSettings, ModelSettings

log = logging.getLogger("evenhand")


OF_ANSWERS = (REASONED, CUT, UNANSWERED)  # columns of a file that are kept beside its responses


@dataclass(frozen=True)
class ResponseFile:
    """A file of responses, which is parsed again only if it has changed.

    Attributes:
        path: the path of the file.
        descriptor_column: the column with the descriptors; None: `descriptor`.
        named: pairs of our column and its name or dotted path in the file.
        reasoning: the start and end of the model's reasoning, if they are not known ones.
        once: whether rows that repeat prompt and response are dropped.
        has_ids: whether a column prompt_id is of the configured prompts in any case (`has_own_prompts`).
    """

    path: Path
    descriptor_column: str | None = None
    named: tuple[tuple[str, str], ...] = ()
    reasoning: tuple[str, ...] = ()
    once: bool = False
    has_ids: bool = False

    @property
    def columns(self) -> dict[str, list]:
        """The columns of the file."""
        status = self.path.stat() if self.path.exists() else None
        version = None if status is None else (status.st_mtime_ns, status.st_size)
        return _read(self, version)

    @property
    def has_prompts(self) -> bool:
        """Whether the prompts are in the file. Otherwise its ids lead to the prompts of `--write_prompts`."""
        return PROMPT_ID not in self.columns

    def prompts(self) -> pd.DataFrame:
        """Return the prompts in the file."""
        return prompts_from_responses(self.columns, self.path).drop(columns=list(RESPONSE_COLUMNS), errors="ignore")


@lru_cache(maxsize=1)
def _read(file: ResponseFile, version: tuple[int, int] | None) -> dict[str, list]:
    columns = read_responses(file.path, file.descriptor_column, dict(file.named), file.reasoning, file.has_ids)
    return drop_repeated_rows(columns) if file.once and PROMPT_ID not in columns else columns


class RecordedModel(Model):
    """A file of responses. The user names the model and its settings; they are not verified."""

    can_be_asked = False

    def __init__(
        self, settings: ModelSettings, decoding: DecodingSettings | None, file: ResponseFile, *, tag: str | None = None
    ) -> None:
        """Give the file; `tag` is the control tag, None for the tag in the file."""
        super().__init__(settings, decoding, tag=tag)
        self.file = file

    def with_settings(self, **changes: object) -> "RecordedModel":
        raise InputError("method", "it asks the model in another way, but a file has its responses; give a model.")

    @property
    def note(self) -> str:
        return (
            f"Responses come from a file ({display_name(str(self.file.path))}): its model is stated by the user and "
            "not verified. No model is loaded, so relevance and perplexity are unknown."
        )

    @property
    def without_weights(self) -> str:
        return f"the responses of {self.name} came in a file: no model is available"

    @property
    def tag(self) -> str:
        """The control tag in the file or the settings; InputError if they differ."""
        return resolve_control_tag(self.file.columns, self._tag, self.file.path)

    def identity(self) -> dict[str, Json]:
        _ = self.tag  # raises if the file cannot be read, or its control tag is not the configured one
        if self.file.has_prompts:
            descriptors = set(self.file.columns[DESCRIPTOR])
            if len(descriptors) == 1:
                raise InputError(
                    "responses",
                    f"{self.file.path}: there is one descriptor, “{descriptors.pop()}”: nothing to compare it with.",
                )
        return {"model": self.name, "responses": sha256_of(self.file.path)}

    @property
    def description(self) -> dict[str, Json]:
        """What the user says about the model, and the hash of the file."""
        description = {
            "name": self.name,
            "revision": self.settings.revision,
            "system_prompt": self.settings.system_prompt,
            "control_tag": self.tag,
            "sha256": sha256_of(self.file.path),
        }
        if self.settings.reasoning:
            description["reasoning"] = self.settings.reasoning
        if self.settings.strip:
            description["strip"] = self.settings.strip
        return description

    def facts(self) -> dict[str, Any]:
        facts = {"model": self.description, "decoding": dict(self.decoding.arguments)}
        if self.file.has_prompts:
            facts["dataset"] = {"name": self.file.path.name}
        return facts

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield the responses to the prompts, by their ids, in one batch; InputError if one is missing."""
        path = self.file.path
        columns = self.file.columns
        if self.file.has_prompts:
            columns = {str(name): list(values) for name, values in prompts_from_responses(columns, path).items()}
        responses = match_responses(columns, prompts[PROMPT_ID].tolist(), path)
        ids = list(map(str, columns[PROMPT_ID]))
        left_out = dict(zip(ids, columns.get(LEFT_OUT, ()), strict=False))
        reasons = []
        for prompt_id, response in zip(prompts[PROMPT_ID], responses, strict=True):
            reason = left_out.get(prompt_id)
            reasons.append(reason if isinstance(reason, str) and not response.strip() else None)
        counts = Counter(filter(None, reasons))
        if counts:
            log.warning("responses: %s: left out: %s", path, dict(counts))
        more = {name: dict(zip(ids, columns[name], strict=True)) for name in OF_ANSWERS if name in columns}
        added = {name: [by_id[prompt_id] for prompt_id in prompts[PROMPT_ID]] for name, by_id in more.items()}
        yield response_batch(prompts, responses, reasons, added, strip=self.settings.strip or ())
