"""Tables of the likelihoods of responses under one model; measures that need weights (`Needs.WEIGHTS`) read them.

A response is scored after its prompt, and after another prompt: of another template, of another person, or without the
person. Likelihoods in a measurement are under the measured model; in a comparison they are, of both runs, under the
model of the first run.

The even reference has the scores of the base model's responses, each given to another descriptor (`even_responses`).
They have the base's styles without bias, but fit their new prompts less well. Limits on costs are relative to it.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.data.other_people import other_people, prompts_of_others
from evenhand.evaluation.metrics.generation_bias.measures import (
    FLUENCY,
    LIKELIHOODS,
    OTHER_LOG_LIKELIHOOD,
    TEMPLATE_LIKELIHOODS,
)
from evenhand.evaluation.metrics.generation_bias.measures.fluency import without_person
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.statistics.cells import to_codes

TABLES = (LIKELIHOODS, TEMPLATE_LIKELIHOODS, FLUENCY)  # the tables that measures read
EVEN_LIKELIHOODS = f"{LIKELIHOODS}_even"  # the table of even responses

Score = Callable[[pd.DataFrame], pd.DataFrame]  # pairs of text and persona with ANSWER_COLUMNS → likelihoods

# With SmolLM2-135M-Instruct, the 95 % interval of the relevance of 300 responses is ±8 % of its value.
SHARE = 0.1
MIN_RESPONSES = 300
SMALL_MODEL = 10_000_000  # parameters; scoring all responses by a smaller model takes seconds
MAX_RESPONSES = 300  # of the relevance within the template


def other_prompts(prompts: pd.DataFrame) -> np.ndarray:
    """Return, for each prompt, the row of a random prompt with its descriptor and another template, or −1, (n,) int.

    The result depends only on the table. In the example, descriptor b has only one template.

    >>> prompts = pd.DataFrame({"descriptor": ["a", "a", "b"], "axis": "x", "template": ["s", "t", "s"]})
    >>> other_prompts(prompts).tolist()
    [1, 0, -1]
    """
    rng = np.random.default_rng(0)
    others = np.full(len(prompts), -1)
    template = to_codes(prompts[columns.TEMPLATE].tolist())
    groups = prompts.groupby([prompts[columns.DESCRIPTOR].astype(str), prompts[columns.AXIS].astype(str)], sort=True)
    for rows in map(np.asarray, groups.indices.values()):
        rows = rows[np.argsort(template[rows], kind="stable")]
        first = np.searchsorted(template[rows], template[rows], "left")
        last = np.searchsorted(template[rows], template[rows], "right")
        n_others = len(rows) - (last - first)  # rows of other templates, which start after the rows of this template
        sampled = (last + np.floor(rng.random(len(rows)) * n_others).astype(int)) % len(rows)
        others[rows] = np.where(n_others > 0, rows[sampled], -1)
    return others


def sample_prompts(prompt_ids: Sequence[str], share: float | None, n_parameters: int) -> np.ndarray:
    """Return whether the response to each prompt is scored by a model with `n_parameters`, (n,) bool.

    The round(share · n), but at least one, prompts with the smallest hashes of their prompt_id are drawn. Runs over the
    same prompts, such as before and after tuning, thus score the responses to the same prompts. A share of None draws a
    tenth, but at least MIN_RESPONSES prompts, and all for a model with fewer than SMALL_MODEL parameters.
    """
    n = len(prompt_ids)
    drawn = max(1, round(share * n)) if share is not None else max(MIN_RESPONSES, round(SHARE * n))
    if drawn >= n or (share is None and n_parameters < SMALL_MODEL):
        return np.ones(n, dtype=bool)
    hashes = [hashlib.blake2b(f"relevance:{prompt_id}".encode(), digest_size=8).digest() for prompt_id in prompt_ids]
    is_drawn = np.zeros(n, dtype=bool)
    is_drawn[sorted(range(n), key=hashes.__getitem__)[:drawn]] = True
    return is_drawn


def even_responses(prompts: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Return, for each prompt, an answer to another descriptor and the same template (and noun, if possible).

    Mentions of the other descriptor are rewritten. A prompt whose template has only one descriptor keeps its answer.

    >>> prompts = pd.DataFrame({"template": ["t", "t"], "descriptor": ["deaf", "blind"]})
    >>> even_responses(prompts, pd.DataFrame({"response": ["Being deaf is hard.", "Cool!"]}))["response"].tolist()
    ['Cool!', 'Being blind is hard.']
    """
    names = mention_terms(prompts)
    donors = other_people(prompts)
    donors = np.where(donors < 0, np.arange(len(prompts)), donors)
    even = answers.iloc[donors].reset_index(drop=True)
    old_names = [names[donor] for donor in donors]
    edits = zip(even[columns.RESPONSE], old_names, names, strict=True)
    even[columns.RESPONSE] = [replace_mentions(response, old, new) for response, old, new in edits]
    return even


def likelihoods_of_responses(
    score: Score, prompts: pd.DataFrame, answers: pd.DataFrame, is_drawn: np.ndarray | None = None
) -> pd.DataFrame:
    """Return the log-likelihood of each response after its prompt and after another prompt.

    The other prompt has the same descriptor and another template (`other_prompts`); the persona is the same. Columns:
    prompt_id, other_prompt_id (null if no other prompt exists), log_likelihood and other_log_likelihood (nats; NaN if
    the prompt does not exist, or if prompt and response are too long for the model), tokens (number of tokens of the
    response with its end-of-sequence token).

    `score` is `Model.log_likelihood`, and `answers` the result of `answers_of`. The table has only rows of the prompts
    that are drawn, (n,) bool; None: all.
    """
    drawn = np.arange(len(prompts)) if is_drawn is None else np.flatnonzero(is_drawn)
    return _likelihoods(score, prompts, answers, drawn, other_prompts(prompts)[drawn])


def likelihoods_within_template(
    score: Score, prompts: pd.DataFrame, answers: pd.DataFrame, is_drawn: np.ndarray | None = None
) -> pd.DataFrame:
    """Return the log-likelihoods of responses after their and after another person's prompt.

    Arguments and columns are those of `likelihoods_of_responses`; without `is_drawn`, MAX_RESPONSES are drawn. The
    sample depends only on the prompts.
    """
    other = other_people(prompts, levels=[[columns.TEMPLATE]])
    rows = np.flatnonzero(other >= 0 if is_drawn is None else is_drawn & (other >= 0))
    if is_drawn is None:
        rows = np.random.default_rng(0).permutation(rows)[:MAX_RESPONSES]
    return _likelihoods(score, prompts, answers, rows, other[rows])


def likelihoods_without_person(score: Score, prompts: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Return the log-likelihood of each response after its prompt `without_person`: prompt_id, log_likelihood, tokens.

    Arguments are those of `likelihoods_of_responses`.
    """
    scored = score(without_person(prompts)[[columns.TEXT, columns.PERSONA]].join(answers))
    return pd.concat([prompts[[columns.PROMPT_ID]], scored], axis=1)


def _likelihoods(
    score: Score, prompts: pd.DataFrame, answers: pd.DataFrame, rows: np.ndarray, other: np.ndarray
) -> pd.DataFrame:
    with_other = other >= 0
    others = prompts_of_others(prompts.iloc[rows][with_other], prompts.iloc[other[with_other]])
    asked = pd.concat([prompts.iloc[rows], others], ignore_index=True)[[columns.TEXT, columns.PERSONA]]
    scored = answers.iloc[np.concatenate([rows, rows[with_other]])].reset_index(drop=True)
    table = score(asked.join(scored))
    n = len(rows)
    other_log_likelihood = np.full(n, np.nan)
    other_log_likelihood[with_other] = table[columns.LOG_LIKELIHOOD].to_numpy()[n:]
    ids = prompts[columns.PROMPT_ID].to_numpy(dtype=object)
    return pd.DataFrame(
        {
            columns.PROMPT_ID: ids[rows],
            "other_prompt_id": np.where(with_other, ids[other], None),
            columns.LOG_LIKELIHOOD: table[columns.LOG_LIKELIHOOD].to_numpy()[:n],
            OTHER_LOG_LIKELIHOOD: other_log_likelihood,
            columns.TOKENS: table[columns.TOKENS].to_numpy()[:n],
        }
    )


def likelihood_table(
    store: Store,
    model: Model,
    name: str,
    prompts: pd.DataFrame,
    answers: pd.DataFrame,
    drawn: np.ndarray | None,
    label: str,
) -> pd.DataFrame:
    """Return the table `name` of `TABLES`, in batches that are saved as they come under the label, by default `name`.

    `drawn` is whether the response to each prompt is scored, (n,) bool, of the table that may be of a sample.
    """
    score = partial(scored_pairs, store, label or name, model)
    if name == LIKELIHOODS:
        return likelihoods_of_responses(score, prompts, answers, drawn)
    if name == TEMPLATE_LIKELIHOODS:
        return likelihoods_within_template(score, prompts, answers, drawn)
    return likelihoods_without_person(score, prompts, answers)


def scored_pairs(store: Store, name: str, model: Model, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the likelihood of each pair's response (`Model.log_likelihood`), in batches that are saved as they come.

    Args:
        store: the run that saves the batches.
        name: the name of the computation.
        model: the model that scores.
        pairs: the columns text and persona, those of `answers_of`, and any others.
    """
    read = [column for column in (columns.TEXT, columns.PERSONA, *columns.ANSWER_COLUMNS) if column in pairs]
    return store.rows(name, pairs[read], model.log_likelihood, unit="likelihoods")


def drawn_prompts(model: Model, prompts: pd.DataFrame, share: float | None) -> np.ndarray:
    """Return whether the response to each prompt is scored by the model (`sample_prompts`), (n,)."""
    return sample_prompts(prompts[columns.PROMPT_ID].tolist(), share, model.n_parameters)
