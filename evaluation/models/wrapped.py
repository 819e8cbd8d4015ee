"""Models that wrap a model, and change what it is asked or which of its responses is the answer."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import clean_responses
from evenhand.evaluation.data.other_people import other_people, prompts_of_others
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.score import CUT, OPENING, PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import CheckpointSettings
from evenhand.evaluation.store import Store

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


class BorrowedOpeningModel(WrappedModel):
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
            raise InputError("method", "a file cannot be continued; leave it out, or give a model.")
        if self.tokens >= (most := self.arguments["max_new_tokens"]):
            raise InputError(
                "method",
                f"{self.tokens} tokens are all of a response (max_new_tokens {most}).",
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
        return {**self.model.entry(inputs), "borrowed_opening": self.tokens}


class NearestStyleModel(WrappedModel):
    """A model that answers in the style of its response to another person, with its own contents.

    K candidates are sampled for each prompt, and one more response after the same template with another descriptor
    (`other_people`). The candidate whose style vector is nearest to this response's is the answer. With many
    candidates, styles no longer depend on the person. It needs no labels, also acts on descriptors that no label knows,
    and works with any server.
    """

    def __init__(self, model: Model, candidates: int, classifier: CheckpointSettings) -> None:
        """Give K and the style classifier."""
        super().__init__(model)
        self.candidates = candidates
        self.classifier = classifier

    def check(self) -> None:
        """Raise InputError if the model cannot be asked, or the candidates of a prompt would be equal."""
        self.model.check()
        if not self.can_be_asked:
            raise InputError("method", "a file has no candidates; leave it out, or give a model.")
        if not self.samples:
            raise InputError("method", "the decoding gives equal candidates; let it sample.")

    def inputs(self) -> dict[str, Any]:
        self.check()
        return self.model.inputs()

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.model.entry(inputs), "nearest_style": self.candidates}

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt, chosen from candidates, the first of which is the model's own response.

        The candidates are written as a table with the columns of the responses and `candidate`, its number from 0.
        """
        from evenhand.evaluation.models.styles import load_style_classifier

        classifier = load_style_classifier(self.classifier)
        n = len(prompts)
        row = np.repeat(np.arange(n), self.candidates)
        if not run.has(CANDIDATES):
            repeated = prompts.iloc[row].reset_index(drop=True)
            number = np.tile(np.arange(self.candidates), n)
            ending = np.where(number > 0, "/" + number.astype(str).astype(object), "")
            asked = repeated.assign(**{PROMPT_ID: repeated[PROMPT_ID].astype(str) + ending})
            answered = self.model.respond(asked, run, name)
            run.write(CANDIDATES, answered.assign(**{PROMPT_ID: repeated[PROMPT_ID], "candidate": number}))
        candidates = run.read(CANDIDATES)
        styles = _style_vectors(run, "candidate_styles", classifier, candidates[RESPONSE], prompts.iloc[row])
        vectors = styles.reshape(n, self.candidates, -1)
        chosen = nearest_candidates(vectors, self._other_styles(prompts, classifier, run))
        percent = 100 * (chosen > 0).mean()
        log.info("nearest_style: %.0f %% of the responses are another candidate than the first", percent)
        places = np.arange(n) * self.candidates + chosen
        return candidates.iloc[places].drop(columns="candidate").reset_index(drop=True)

    def _other_styles(self, prompts: pd.DataFrame, classifier: "Classifier", run: Store) -> np.ndarray:
        """Return the style vector of a response to another person for each prompt, (n, S)."""
        asked, donors = other_prompts(prompts, self.seed)
        asked = asked.assign(**{PROMPT_ID: asked[PROMPT_ID] + "/other"})
        others = self.model.respond(asked, run, "other_responses")
        return _style_vectors(run, "other_styles", classifier, others[RESPONSE], donors)


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
