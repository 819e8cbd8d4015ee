"""A model whose weights are here: loaded when it is first needed."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.models.chat_templates import NO_TEMPLATE, read_template
from evenhand.evaluation.models.model import Model, compute_rows, prompt_seed, response_table
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.score import CUT, OPENING, PERSONA, PROMPT_ID, REASONED, RESPONSE, TEXT
from evenhand.evaluation.settings import as_settings
from evenhand.evaluation.store import Store

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel

SERVED_FIELDS = ("server", "api", "concurrency", "request", "tokenizer")  # of the settings, for served models only
MODEL_FACTS = "model"  # the file of facts for the signature that are known only once the model is loaded


class LoadedModel(Model):
    """A causal, encoder-decoder or masked model in this process; `engine` is set for a model that is loaded already."""

    engine: "DialogueModel | None" = None

    def load(self) -> "DialogueModel":
        """Return the loaded model."""
        from evenhand.evaluation.models.loading import load_dialogue_model

        if self.engine is None:
            self.engine = load_dialogue_model(self.settings)
        return self.engine

    def release(self) -> None:
        self.engine = None
        super().release()

    @cached_property
    def is_masked(self) -> bool:
        from evenhand.evaluation.models.loading import is_masked_lm

        return is_masked_lm(self.settings)

    @property
    def is_chat(self) -> bool:
        return self.load().kind == "chat"

    def check(self) -> None:
        from evenhand.evaluation.models.checkpoints import resolve_device

        super().check()
        resolve_device(self.settings.device)

    def inputs(self) -> dict[str, Any]:
        file = self.settings.chat_template
        template = {} if file is None else {"chat_template": sha256(read_template(file).encode()).hexdigest()}
        return {"model": model_revision(self.name, self.settings.revision, self.settings.base)} | template

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        settings = {name: value for name, value in as_settings(self.settings).items() if name not in SERVED_FIELDS}
        return {**settings, "revision": inputs["model"]}

    def contexts(self, prompts: pd.DataFrame) -> list[str]:
        """Return the texts that the model reads before its responses."""
        from evenhand.evaluation.models.contexts import render_contexts

        return render_contexts(self.load(), prompts[TEXT].tolist(), prompts[PERSONA].tolist(), self.tag)

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt, whether max_new_tokens cut it, and whether it had reasoning.

        The model reads `contexts`, and samples by the random numbers of its prompt's id.
        """
        from evenhand.evaluation.models.generation import generate_responses

        if run is not None:
            processes.on_rank_zero(lambda: self._facts(run))

        def compute(contexts: Sequence[str], seeds: Sequence[int], openings: Sequence[str]) -> Iterator:
            options = {"openings": openings, "first": self.first, "batch_size": self.decoding.batch_size}
            return generate_responses(self.load(), contexts, seeds, self.arguments, **options)

        seeds = [prompt_seed(prompt_id, self.seed) for prompt_id in prompts[PROMPT_ID]]
        asked = self.contexts(prompts), seeds, prompts.get(OPENING, pd.Series("", prompts.index)).tolist()
        table = compute_rows(run, name, [RESPONSE, CUT, REASONED], compute, *asked, unit="responses")
        return response_table(prompts, table.pop(RESPONSE), **table)

    def _facts(self, run: Store) -> dict[str, Any]:
        """Return the precision that "auto" resolved to and the prompt format, which are kept in the run's folder."""
        from evenhand.evaluation.models.contexts import prompt_format

        def facts() -> dict[str, Any]:
            dtype = str(self.load().model.dtype).removeprefix("torch.")
            found = {"dtype": dtype, "format": prompt_format(self.load())}
            if self.load().kind == "dialogue" and not self.load().tokenizer.chat_template:
                found["format"]["template"] = NO_TEMPLATE
            return found

        return run.keep_facts(MODEL_FACTS, facts)

    def signature(self, run: Store, responses: pd.DataFrame) -> dict[str, Any]:
        facts = processes.on_rank_zero(lambda: self._facts(run))
        model = {**self.entry(run.inputs), "dtype": facts["dtype"], "control_tag": self.tag}
        return {"model": model, "format": facts["format"], "decoding": dict(self.arguments)}

    def log_likelihood(
        self, prompts: pd.DataFrame, responses: Sequence[str], run: Store | None = None, name: str = "likelihoods"
    ) -> pd.DataFrame:
        from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods

        compute = partial(response_log_likelihoods, self.load())
        columns, contexts = ["log_likelihood", "tokens"], self.contexts(prompts)
        return pd.DataFrame(compute_rows(run, name, columns, compute, contexts, responses, unit="likelihoods"))

    def score_sentences(
        self, run: Store, sentences: Sequence[str], context: str, end_of_sequence: bool
    ) -> tuple[np.ndarray, np.ndarray, str]:
        from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods

        return sentence_log_likelihoods(run, self.load(), sentences, context, end_of_sequence)

    def n_parameters(self) -> int:
        return self.load().model.num_parameters()

    def capability_rows(self, tasks: Sequence[Any]) -> pd.DataFrame:
        from evenhand.evaluation.models.capabilities import capability_rows

        return capability_rows(self.load(), tasks)
