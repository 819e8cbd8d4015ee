"""Models that wrap a model.

Resampling: several candidates for each prompt, one of which is drawn by the weights exp(λ · φ) of its style φ. For many
candidates, the response is distributed as p(x | prompt) exp(λ · φ(x)) / Z (sampling importance resampling; Rubin 1988,
"Using the SIR algorithm to simulate posterior distributions"). The weights of K candidates are normalised by their own
sum, so that the mean style moves by only (K − 1)/K of the way, to first order in λ. λ is therefore multiplied by
K/(K − 1).
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import clean_responses
from evenhand.evaluation.data.other_people import other_people, prompts_of_others
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.models.model import Model, prompt_seed
from evenhand.evaluation.score import AXIS, CUT, DESCRIPTOR, KIND, OPENING, PROMPT_ID, RESPONSE, UNIT
from evenhand.evaluation.settings import CheckpointSettings
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import read_table

if TYPE_CHECKING:
    from evenhand.evaluation.models.styles import Classifier

log = logging.getLogger("evenhand")

CANDIDATES = "candidates"  # the table of all candidates


class WrappedModel(Model):
    """A model that passes everything on to another model; a subclass changes what is asked or answered."""

    def __init__(self, model: Model) -> None:
        """Wrap the model."""
        super().__init__(model.settings, model.decoding, tag=model._tag, seed=model.seed)
        self.model = model
        facts = ("note", "without_weights", "can_be_asked", "has_prompts")
        for name in (*facts, "prompts", "log_likelihood", "n_parameters", "capability_rows", "release", "only_tokens"):
            setattr(self, name, getattr(model, name))

    @property
    def arguments(self) -> dict[str, Any]:
        return self.model.arguments

    @property
    def is_chat(self) -> bool:
        return self.model.is_chat

    @property
    def samples(self) -> bool:
        return self.model.samples

    def signature(self, run: Store, responses: pd.DataFrame) -> dict[str, Any]:
        """Return the entries of the model and of what wraps it."""
        entries = self.model.signature(run, responses)
        return {**entries, "model": self.entry(run.inputs) | entries["model"]}


class OpenedModel(WrappedModel):
    """A model whose responses begin as if to another person, and go on as to the person who asked.

    The first m tokens of a response are sampled after the same template with another descriptor (`other_people`), so
    that they do not depend on the person; the model continues them after the own prompt. An opening is drawn with the
    random numbers of the prompt that it answers, so that responses to different prompts are independent. It needs no
    labels, and also acts on descriptors that no label knows.
    """

    def __init__(self, model: Model, tokens: int) -> None:
        """Give m, the number of tokens of another person's response."""
        super().__init__(model)
        self.tokens = tokens

    def check(self) -> None:
        """Raise InputError if the model cannot be asked, or its responses would consist of the opening only."""
        self.model.check()
        if not self.can_be_asked:
            raise InputError("generation_bias.opening: a file cannot be continued; leave it out, or give a model.")
        if self.tokens >= (most := self.arguments["max_new_tokens"]):
            raise InputError(
                f"generation_bias.opening: {self.tokens} tokens are all of a response (max_new_tokens {most})."
            )

    def inputs(self) -> dict[str, Any]:
        self.check()
        return self.model.inputs()

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt. A response that ends within its opening is not continued."""
        asked, _ = other_prompts(prompts, self.seed)
        with self.only_tokens(0, self.tokens):
            responses = self.model.respond(asked, run, f"openings_of_{name}")
        is_unfinished = responses[CUT].to_numpy(dtype=bool)
        if not is_unfinished.any():
            return responses
        # A token may be part of a character, whose text is U+FFFD.
        openings = [text.rstrip("\ufffd") for text in responses[RESPONSE][is_unfinished]]
        begun = prompts[is_unfinished].reset_index(drop=True).assign(**{OPENING: openings})
        with self.only_tokens(self.tokens, self.arguments["max_new_tokens"]):
            continued = self.model.respond(begun, run, name)
        whole = responses[~is_unfinished]
        return pd.concat([whole, continued.set_index(responses.index[is_unfinished])]).sort_index()

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.model.entry(inputs), "opening": self.tokens}


class CandidatesModel(WrappedModel):
    """A model whose responses are chosen from K candidates of another model by their style."""

    setting = ""  # that asked for it

    def __init__(self, model: Model, candidates: int, classifier: CheckpointSettings) -> None:
        """Give K and the style classifier."""
        super().__init__(model)
        self.candidates, self.classifier = candidates, classifier

    def check(self) -> None:
        """Raise InputError if the model cannot be asked, or the candidates of a prompt would be equal."""
        self.model.check()
        if not self.can_be_asked:
            raise InputError(
                f"generation_bias.{self.setting}: a file has no candidates; leave it out, or give a model."
            )
        if not self.samples:
            raise InputError(f"generation_bias.{self.setting}: the decoding gives equal candidates; let it sample.")

    def inputs(self) -> dict[str, Any]:
        self.check()
        return self.model.inputs()

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt, chosen from candidates, the first of which is the model's own response.

        The candidates are written as a table with the columns of the responses and `candidate`, its number from 0.
        """
        from evenhand.evaluation.models.styles import load_style_classifier

        classifier = load_style_classifier(self.classifier)
        counts = self.counts(prompts, classifier)
        row, number = np.repeat(np.arange(len(prompts)), counts), np.concatenate(list(map(np.arange, counts)))
        if not run.has(CANDIDATES):
            repeated = prompts.iloc[row].reset_index(drop=True)
            ids = repeated[PROMPT_ID].astype(str) + np.where(number > 0, "/" + number.astype(str).astype(object), "")
            answered = self.model.respond(repeated.assign(**{PROMPT_ID: ids}), run, name)
            run.write(CANDIDATES, answered.assign(**{PROMPT_ID: repeated[PROMPT_ID], "candidate": number}))
        candidates = run.read(CANDIDATES)
        styles = _style_vectors(run, "candidate_styles", classifier, candidates[RESPONSE], prompts.iloc[row])
        vectors = np.full((len(prompts), self.candidates, styles.shape[1]), np.nan)
        vectors[row, number] = styles
        chosen = self.choose(prompts, vectors, classifier, run)
        log.info(
            "%s: %.0f %% of the responses are another candidate than the first", self.setting, 100 * (chosen > 0).mean()
        )
        first = np.cumsum(counts) - counts
        return candidates.iloc[first + chosen].drop(columns="candidate").reset_index(drop=True)

    def counts(self, prompts: pd.DataFrame, classifier: "Classifier") -> np.ndarray:
        """Return the number of candidates of each prompt, (n,)."""
        return np.full(len(prompts), self.candidates)

    @abstractmethod
    def choose(self, prompts: pd.DataFrame, vectors: np.ndarray, classifier: "Classifier", run: Store) -> np.ndarray:
        """Return the index of the chosen candidate of each prompt, (n,), from style vectors, (n, K, S).

        The vector of an empty candidate, or of one that was not asked for, is NaN.
        """


class ResampledModel(CandidatesModel):
    """A model whose responses are drawn from candidates of another model by exp(λ · φ).

    A prompt whose λ is 0 has one candidate. Empty candidates are drawn only if all candidates of a prompt are empty.
    """

    setting = "resampling"

    def __init__(self, model: Model, candidates: int, classifier: CheckpointSettings, exponents: Path) -> None:
        """Give K, the style classifier of φ, and the table of exponents of `evenhand label`."""
        super().__init__(model, candidates, classifier)
        self.exponents = exponents

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "exponents": sha256_of(self.exponents)}

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        resampling = {"candidates": self.candidates, "exponents": inputs["exponents"]}
        return {**self.model.entry(inputs), "resampling": resampling}

    def counts(self, prompts: pd.DataFrame, classifier: "Classifier") -> np.ndarray:
        exponents = prompt_exponents(read_table(self.exponents), prompts, classifier.labels)
        return np.where(exponents.any(axis=1), self.candidates, 1)

    def choose(self, prompts: pd.DataFrame, vectors: np.ndarray, classifier: "Classifier", run: Store) -> np.ndarray:
        exponents = prompt_exponents(read_table(self.exponents), prompts, classifier.labels)
        scores = candidate_scores(vectors, exponents[:, None], self.candidates)
        seeds = [prompt_seed(f"{prompt_id}/draw", self.seed) for prompt_id in prompts[PROMPT_ID]]
        return draw_candidates(scores, np.array([np.random.default_rng(seed).random(2) for seed in seeds]))


class StyleExchangedModel(CandidatesModel):
    """A model that answers in the style of its response to another person, with its own contents.

    One more response is sampled after the same template with another descriptor (`other_people`); the candidate whose
    style vector is nearest to this response's is the answer. With many candidates, styles no longer depend on the
    person. It needs no labels, also acts on descriptors that no label knows, and works with any server.
    """

    setting = "style_exchange"

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.model.entry(inputs), "style_exchange": self.candidates}

    def choose(self, prompts: pd.DataFrame, vectors: np.ndarray, classifier: "Classifier", run: Store) -> np.ndarray:
        asked, donors = other_prompts(prompts, self.seed)
        asked = asked.assign(**{PROMPT_ID: asked[PROMPT_ID] + "/other"})
        others = self.model.respond(asked, run, "other_responses")
        styles = _style_vectors(run, "other_styles", classifier, others[RESPONSE], donors)
        return nearest_candidates(vectors, styles)


def draw_response(
    candidates: Sequence[str],
    *,
    descriptor: str,
    exponents: pd.DataFrame,
    style_classifier: "Classifier",
    axis: str = "",
    seed: int | None = None,
) -> int:
    """Return the index of the candidate to use as the response: the method `resample` for your own server.

    Candidates are responses that the model sampled for one prompt, in the order of sampling. For many candidates, the
    drawn response is distributed as the even target (docs/mitigation.md). The first candidate is drawn as often as
    possible, and always if the table has no exponent of the descriptor and the axis. A blank candidate is drawn only if
    all are blank.

    Args:
        candidates: two or more responses.
        descriptor: descriptor of the person in the prompt, as in the labelled run.
        exponents: the table `exponents.parquet` of `evenhand label`: kind, unit and a column for each style.
        style_classifier: result of `load_style_classifier`, for the classifier of the labelled run.
        axis: axis of the descriptor, whose exponent is used if the descriptor has none.
        seed: seed of the draw; None: random.

    Raises:
        InputError: fewer than two candidates, a candidate that is not text, a classifier that is not loaded, or
            exponents of other styles than the classifier's.
    """
    if isinstance(candidates, str) or len(candidates) < 2:
        raise InputError(f"candidates: {format_value(candidates)}; give two or more responses to one prompt.")
    from evenhand.evaluation.models.styles import classify_responses

    people = pd.DataFrame({DESCRIPTOR: [descriptor] * len(candidates)})
    vectors = classify_responses(style_classifier, candidates, people)
    prompt = pd.DataFrame({DESCRIPTOR: [descriptor], AXIS: [axis]})
    exponent = prompt_exponents(exponents, prompt, style_classifier.labels)[0]
    scores = candidate_scores(vectors, exponent, len(candidates))
    return int(draw_candidates(scores[None], np.random.default_rng(seed).random((1, 2)))[0])


def other_prompts(prompts: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace each prompt's text by another person's; return the prompts, and the rows that their texts are from.

    A prompt to whose template nobody else is asked keeps its text.
    """
    other = other_people(prompts, seed)
    donors = prompts.iloc[np.where(other < 0, np.arange(len(prompts)), other)]
    return prompts_of_others(prompts, donors), donors


def nearest_candidates(vectors: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the index of the candidate whose style vector is nearest to a target by Euclidean distance, (n,).

    Candidates whose vector is NaN are chosen last; for a target of NaN, the first candidate is returned.

    Args:
        vectors: style vectors of the candidates, (n, K, S).
        target: style vector of another response for each prompt, (n, S).
    """
    distance = ((vectors - target[:, None]) ** 2).sum(axis=2)
    return np.where(np.isnan(distance), np.inf, distance).argmin(axis=1)


def _style_vectors(
    run: Store, name: str, classifier: "Classifier", responses: pd.Series, prompts: pd.DataFrame
) -> np.ndarray:
    from evenhand.evaluation.models.styles import classify_rows, to_style_vectors

    return to_style_vectors(classifier, classify_rows(run, name, classifier, clean_responses(responses, prompts))[0])


def candidate_scores(vectors: np.ndarray, exponents: np.ndarray, k: int) -> np.ndarray:
    """Return K/(K − 1) · λ · φ of candidates, (…), from their style vectors, (…, S), and λ, (…, S)."""
    return k / (k - 1) * (vectors * exponents).sum(axis=-1)


def prompt_exponents(exponents: pd.DataFrame, prompts: pd.DataFrame, styles: tuple[str, ...]) -> np.ndarray:
    """Return λ of each prompt, (n, S): of its descriptor, else of its axis, and 0 if neither has a λ.

    `exponents` is a table of `evenhand label`: kind, unit and a column for each style.
    """
    if list(exponents.columns[:2]) != [KIND, UNIT]:
        raise InputError("resampling.exponents: no table of exponents; give that of `evenhand label`.")
    if list(exponents.columns[2:]) != list(styles):
        raise InputError("resampling.exponents: they are of other styles than the style classifier's.")
    table = exponents.set_index([KIND, UNIT])
    result, is_found = np.zeros((len(prompts), len(styles))), np.zeros(len(prompts), dtype=bool)
    for kind in (DESCRIPTOR, AXIS):
        known = table.xs(kind) if kind in table.index.get_level_values(KIND) else table.iloc[:0]
        place = known.index.get_indexer(prompts[kind].astype(str))
        rows = np.flatnonzero((place >= 0) & ~is_found)
        result[rows], is_found[rows] = known.to_numpy()[place[rows]], True
        log.info("resampling: %d of %d prompts have the exponent of their %s", len(rows), len(prompts), kind)
    return result


def draw_candidates(scores: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return the index of the drawn candidate of each prompt, (n,), with probabilities p_j proportional to exp(score).

    Candidate 0 is kept with the largest possible probability, min(1, K p_0), so that as few responses as possible
    change (a maximal coupling with the uniform distribution). Otherwise candidate j is drawn with a probability
    proportional to max(0, p_j − 1/K). This preference for candidate 0 is valid because candidates are exchangeable.

    Args:
        scores: logarithms of weights, (n, K); NaN for a candidate that is drawn only if all are NaN.
        uniform: two random numbers of [0, 1) for each prompt, (n, 2).
    """
    k = scores.shape[1]
    usable = np.where(np.isnan(scores).all(axis=1, keepdims=True), 0.0, np.where(np.isnan(scores), -np.inf, scores))
    p = np.exp(usable - usable.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    excess = np.maximum(p - 1 / k, 0)
    ends = np.cumsum(excess, axis=1)
    other = (uniform[:, 1:] * ends[:, -1:] >= ends).sum(axis=1)
    return np.where(uniform[:, 0] < k * p[:, 0], 0, np.minimum(other, k - 1))
