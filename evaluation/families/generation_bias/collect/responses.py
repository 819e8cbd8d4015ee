"""Prompts → responses → style vectors, by a dialogue model and a style classifier."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.mentions import clean_response
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.costs.relevance import other_prompts
from evenhand.evaluation.models.contexts import UNFINISHED_REASONING, render_contexts
from evenhand.evaluation.models.generation import generate_responses, prompt_seed
from evenhand.evaluation.models.likelihood.perplexity import response_log_likelihoods, response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier, classify_texts, style_vectors, warn_truncated
from evenhand.evaluation.results import LEFT_OUT, PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.rows import Rows
from evenhand.evaluation.runs.parts import Parts
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.run import Run


def respond(
    model: DialogueModel,
    prompts: pd.DataFrame,
    tag: str,
    arguments: Mapping[str, Any],
    *,
    seed: int,
    batch_size: int,
    run: Run | None = None,
) -> list[str | None]:
    """Return one response per prompt row; a run keeps batches as they are made, and does not make them again.

    None is a response that never left its thought (`generate_responses`).
    Without one nothing is kept and no progress is shown. `arguments` are those of `generate`, the tag stands at the end
    of each context.
    """
    contexts = render_contexts(model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), tag)
    seeds = [prompt_seed(prompt_id, seed) for prompt_id in prompts[PROMPT_ID]]
    if run is None:
        batches = generate_responses(model, contexts, seeds, arguments, batch_size=batch_size)
        responses = {row: text for rows, texts in batches for row, text in zip(rows, texts, strict=True)}
        return [responses[row] for row in range(len(prompts))]
    parts = run.parts("responses", [RESPONSE], len(prompts))
    for shard in parts.unfinished_shards():
        batches = generate_responses(model, contexts, seeds, arguments, batch_size=batch_size, shard=shard)
        parts.save(shard, batches, "responses", "responses")
    return read_responses(parts)


def read_responses(parts: Parts) -> list[str | None]:
    """Return the responses in parts; None is a response whose reasoning did not end."""
    return [text if isinstance(text, str) else None for text in parts.read()[RESPONSE]]


def response_table(prompts: pd.DataFrame, texts: Sequence[str | None]) -> pd.DataFrame:
    """Return row by row prompt_id, response, and why it is left out; None is a response that never left its thought."""
    left_out = [UNFINISHED_REASONING if text is None else None for text in texts]
    answered = {RESPONSE: [text or "" for text in texts], LEFT_OUT: left_out}
    return pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], **answered})


def refuse_silence(responses: Sequence[str]) -> None:
    """Raise an InputError if no response has any text."""
    if not any(response.strip() for response in responses):
        raise InputError(
            f"responses: all {len(responses)} are empty, or never left the model's thought; check the model, its tag "
            "and decoding.arguments: one that thinks needs a larger max_new_tokens."
        )


def cleaned(responses: Iterable[str], descriptors: Iterable[str]) -> list[str]:
    """Return the responses, each cleaned of its prompt's descriptor (002 A.6)."""
    return [clean_response(*pair) for pair in zip(responses, descriptors, strict=True)]


def classify(classifier: StyleClassifier, responses: Sequence[str], descriptors: Sequence[str]) -> np.ndarray:
    """Return the style vector (n, S) of each response, cleaned of its prompt's descriptor first."""
    return style_vectors(classifier, cleaned(responses, descriptors))


def classify_in_parts(
    run: Run, name: str, classifier: StyleClassifier, texts: Sequence[str]
) -> tuple[Rows, np.ndarray]:
    """Return each text's probabilities of all labels, (n, S), and whether it was cut, (n,), kept as they are made."""
    columns = ["cut", *(f"p{label}" for label in range(len(classifier.labels)))]
    parts = run.parts(name, columns, len(texts))
    for shard in parts.unfinished_shards():
        batches = classify_texts(classifier, texts, shard=shard)
        batches = ((rows, cut, *probabilities.T) for rows, probabilities, cut in batches)
        parts.save(shard, batches, name.replace("_", " "), "responses")
    cut, probabilities = parts.read_numbers()
    cut = cut.astype(bool)
    warn_truncated(classifier, int(cut.sum()), len(texts))
    return probabilities, cut


def response_likelihoods(model: DialogueModel, pairs: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Return dialogue pairs (text, response) with log_likelihood, in nats, and tokens of each response."""
    contexts = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs), tag)
    with progress(len(pairs), "perplexity", "dialogues") as advance:
        log_likelihood, tokens = response_perplexity(model, contexts, pairs[RESPONSE].tolist(), on_progress=advance)
    return pairs.assign(log_likelihood=log_likelihood, tokens=tokens)


def likelihoods_of_responses(
    run: Run, name: str, model: DialogueModel, prompts: pd.DataFrame, responses: Sequence[str], tag: str
) -> pd.DataFrame:
    """Return how likely each response is after its own prompt and after another, kept in the run as they are made.

    The other prompt has the same descriptor and another template (`other_prompts`); the persona stays. Columns:
    prompt_id, other_prompt_id (null where there is none), log_likelihood and other_log_likelihood (nats, NaN where a
    prompt with the response is too long for the model, or absent), tokens (of the response with its end).

    Args:
        name: of the parts that the run keeps.
        model: the judge of the responses; `tag` is what it is used with.
    """
    other = other_prompts(prompts)
    there = np.flatnonzero(other >= 0)
    texts, personas = prompts[TEXT].to_numpy(), prompts[PERSONA].to_numpy()
    asked = [*texts, *texts[other[there]]]
    contexts = render_contexts(model, asked, [*personas, *personas[there]], tag)
    said = [*responses, *(responses[row] for row in there)]
    parts = run.parts(name, ["log_likelihood", "tokens"], len(said))
    for shard in parts.unfinished_shards():
        parts.save(shard, response_log_likelihoods(model, contexts, said, shard=shard), "relevance", "responses")
    found = parts.read()
    n, elsewhere = len(prompts), np.full(len(prompts), np.nan)
    elsewhere[there] = found["log_likelihood"].to_numpy()[n:]
    ids = prompts[PROMPT_ID].to_numpy(dtype=object)
    return pd.DataFrame(
        {
            PROMPT_ID: ids,
            "other_prompt_id": np.where(other >= 0, ids[other], None),
            "log_likelihood": found["log_likelihood"].to_numpy()[:n],
            "other_log_likelihood": elsewhere,
            "tokens": found["tokens"].to_numpy()[:n],
        }
    )
