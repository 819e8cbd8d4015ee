"""Responses in a file, such as from an API or logs: nothing is loaded or asked."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.data.prompt_files import CONTROL_TAG
from evenhand.evaluation.data.response_files import (
    drop_repeated_rows,
    match_responses,
    prompts_from_responses,
    read_responses,
    resolve_control_tag,
    with_repeats,
)
from evenhand.evaluation.data.response_logs import REASONING, STOP
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.score import DESCRIPTOR, LEFT_OUT, PROMPT_ID, REASONED, RESPONSE, display_name
from evenhand.evaluation.settings import DecodingSettings, ModelSettings
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")


class RecordedModel(Model):
    """A file of responses. The user names the model and its settings; they are not verified."""

    can_be_asked = False

    def __init__(
        self,
        settings: ModelSettings,
        decoding: DecodingSettings | None,
        path: Path,
        descriptor_column: str | None = None,
        named: Mapping[str, str] | None = None,
        *,
        tag: str | None = None,
        once: bool = False,
        has_ids: bool = False,
    ) -> None:
        """Name the file; `descriptor_column` has the descriptors; `once` drops rows that repeat prompt and response.

        `named` has our columns with their names or dotted paths in the file. With `has_ids`, a column prompt_id is of
        the configured prompts in any case (`response_files.has_own_prompts`).
        """
        super().__init__(settings, decoding, tag=tag)
        self.path = path
        self.descriptor_column = descriptor_column
        self.named = dict(named or {})
        self.once = once
        self.has_ids = has_ids

    @property
    def note(self) -> str:
        return (
            f"Responses come from a file ({display_name(str(self.path))}): its model is stated by the user and not "
            "verified. No model is loaded, so relevance and perplexity are unknown."
        )

    @property
    def without_weights(self) -> str:
        return f"the responses of {self.name} came in a file: no model is available"

    @property
    def columns(self) -> dict[str, list]:
        """The columns of the file, which is parsed again only if it has changed."""
        stat = self.path.stat() if self.path.exists() else None
        version = stat and (stat.st_mtime_ns, stat.st_size)
        named = tuple(self.named.items())
        reasoning = tuple(self.settings.reasoning or ())
        return _read(self.path, self.descriptor_column, named, reasoning, self.once, self.has_ids, version)

    @property
    def has_prompts(self) -> bool:
        """Whether the prompts are in the file. Otherwise its ids lead to the prompts of `--write_prompts`."""
        return PROMPT_ID not in self.columns

    @property
    def tag(self) -> str:
        """The control tag in the file or the settings; InputError if they differ."""
        return resolve_control_tag(self.columns, self._tag, self.path)

    def inputs(self) -> dict[str, Any]:
        _ = self.tag  # raises if the file cannot be read, or its control tag is not the configured one
        if self.has_prompts and len(names := set(self.columns[DESCRIPTOR])) == 1:
            raise InputError(
                "responses", f"{self.path}: there is one descriptor, “{names.pop()}”: nothing to compare it with."
            )
        return {"model": self.name, "responses": sha256_of(self.path)}

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the user says about the model, and the hash of the file."""
        model = {name: getattr(self.settings, name) for name in ("name", "revision", "system_prompt")}
        model |= {"reasoning": self.settings.reasoning} if self.settings.reasoning else {}
        return model | {"control_tag": self.tag, "sha256": inputs["responses"]}

    def prompts(self, sampled: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        if not self.has_prompts:
            return with_repeats(sampled(), self.columns[PROMPT_ID])
        return prompts_from_responses(self.columns, self.path).drop(
            columns=[RESPONSE, CONTROL_TAG, LEFT_OUT, STOP, REASONED, REASONING], errors="ignore"
        )

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return the response to each prompt, by its id; InputError if one is missing."""
        columns = self.columns
        if self.has_prompts:
            columns = prompts_from_responses(columns, self.path).to_dict("list")
        responses = match_responses(columns, prompts[PROMPT_ID].tolist(), self.path)
        ids = list(map(str, columns[PROMPT_ID]))
        given = dict(zip(ids, columns.get(LEFT_OUT, ()), strict=False))
        reasoned = dict(zip(ids, columns[REASONED], strict=True))
        reasons = [
            reason if isinstance(reason := given.get(prompt_id), str) and not response.strip() else None
            for prompt_id, response in zip(prompts[PROMPT_ID], responses, strict=True)
        ]
        if counts := Counter(filter(None, reasons)):
            log.warning("responses: %s: left out: %s", self.path, dict(counts))
            if run is not None:
                run.facts["left_out"] = dict(counts)
        had_reasoning = [reasoned[prompt_id] for prompt_id in prompts[PROMPT_ID]]
        return pd.DataFrame(
            {PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses, LEFT_OUT: reasons, REASONED: had_reasoning}
        )

    def signature(self, run: Store, responses: pd.DataFrame) -> dict[str, Any]:
        dataset = {"dataset": {"name": self.path.name}} if self.has_prompts else {}
        return {"model": self.entry(run.inputs), "decoding": dict(self.decoding.arguments), **dataset}


@lru_cache(maxsize=1)
def _read(
    path: Path,
    descriptor: str | None,
    named: tuple[tuple[str, str], ...],
    reasoning: tuple[str, ...],
    once: bool,
    has_ids: bool,
    version: tuple[int, int] | None,
) -> dict[str, list]:
    columns = read_responses(path, descriptor, dict(named), reasoning, has_ids)
    return drop_repeated_rows(columns) if once and PROMPT_ID not in columns else columns
