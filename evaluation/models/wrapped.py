"""Models that wrap a model, and change what it is asked or which of its responses is the answer."""

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.other_people import other_people, prompts_of_others
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.score import CUT, OPENING, PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.settings import CheckpointSettings
from evenhand.evaluation.tables import join_batches

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.evaluation.models.styles import Classifier

PARTNER = "partner_"  # the columns of another person's prompt, beside each prompt, begin with this
CANDIDATES = "candidates"  # column of the responses: all candidates for a prompt
CHUNK = 256  # prompts whose candidates are sampled and classified together, and lost if the run is killed


class WrappedModel(Model):
    """A model that passes everything on to another model; a subclass changes what is asked or answered."""

    def __init__(self, model: Model) -> None:
        """Wrap the model."""
        super().__init__(model.settings, model.decoding, tag=model._tag, seed=model.seed)
        self.model = model
        self.note = model.note
        self.without_weights = model.without_weights
        self.can_be_asked = model.can_be_asked
        self.needs_partners = model.needs_partners

    @property
    def arguments(self) -> dict[str, Any]:
        return self.model.arguments

    @property
    def is_chat(self) -> bool:
        return self.model.is_chat

    @property
    def samples(self) -> bool:
        return self.model.samples

    def with_settings(self, **changes: Any) -> "WrappedModel":
        wrapped = copy(self)
        WrappedModel.__init__(wrapped, self.model.with_settings(**changes))
        return wrapped

    @property
    def changes(self) -> dict[str, Any]:
        """What is changed, as entries of the model in a score's signature."""
        return {}

    @property
    def description(self) -> dict[str, Any]:
        return {**self.model.description, **self.changes}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        self.model.check(prompts)
        if self.needs_partners and prompts is not None and not any(name.startswith(PARTNER) for name in prompts):
            raise InputError("prompts", "they have no columns of other people's prompts; add them by `with_partners`.")

    def identity(self) -> dict[str, Any]:
        self.check()
        return self.model.identity()

    def facts(self) -> dict[str, Any]:
        facts = self.model.facts()
        return {**facts, "model": {**facts["model"], **self.changes}}

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        return self.model.respond(prompts, tokens)

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        return self.model.log_likelihood(pairs)

    def load(self) -> "DialogueModel":
        return self.model.load()

    def close(self) -> None:
        self.model.close()


class BorrowedOpeningModel(WrappedModel):
    """A model whose responses begin as if to another person, and go on as to the person who asked.

    The first m tokens of a response are sampled after the same template with another descriptor (`with_partners`), so
    that they do not depend on the person; the model continues them after the person's own prompt. An opening is drawn
    with the random numbers of the prompt that it answers, so that responses to different prompts are independent. It
    needs no labels, and also acts on descriptors that no label knows.
    """

    def __init__(self, model: Model, tokens: int) -> None:
        """Give m, the number of tokens of another person's response."""
        super().__init__(model)
        self.tokens = tokens
        self.needs_partners = True

    @property
    def changes(self) -> dict[str, Any]:
        return {"borrowed_opening": self.tokens}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model cannot be asked, or its responses would consist of the opening only."""
        super().check(prompts)
        if not self.can_be_asked:
            raise InputError("method", "a file cannot be continued; leave it out, or give a model.")
        limit = self.arguments["max_new_tokens"]
        if self.tokens >= limit:
            raise InputError("method", f"{self.tokens} tokens are all of a response (max_new_tokens {limit}).")

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses. A response that ends within its opening is not continued."""
        whole = range(self.arguments["max_new_tokens"]) if tokens is None else tokens
        first = whole[: self.tokens]
        rest = whole[self.tokens :]
        for openings in self.model.respond(partner_prompts(prompts), first):
            is_unfinished = openings[CUT].to_numpy(dtype=bool)
            if not is_unfinished.all():
                yield openings[~is_unfinished]
            if is_unfinished.any():
                begun = openings[is_unfinished]
                # A token may be a part of a character, whose text is U+FFFD.
                texts = [text.rstrip("\ufffd") for text in begun[RESPONSE]]
                yield from self.model.respond(prompts.loc[begun.index].assign(**{OPENING: texts}), rest)


class NearestStyleModel(WrappedModel):
    """A model that answers in the style of its response to another person, with its own contents.

    K candidates are sampled for each prompt, and one more response after the same template with another descriptor
    (`with_partners`). The candidate whose style vector is nearest to this response's is the answer. With many
    candidates, styles no longer depend on the person. It needs no labels, also acts on descriptors that no label knows,
    and works with any server.
    """

    def __init__(self, model: Model, candidates: int, classifier: CheckpointSettings) -> None:
        """Give K and the style classifier."""
        super().__init__(model)
        self.candidates = candidates
        self.classifier = classifier
        self.needs_partners = True

    @property
    def changes(self) -> dict[str, Any]:
        return {"nearest_style": self.candidates}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model cannot be asked, or the candidates of a prompt would be equal."""
        super().check(prompts)
        if not self.can_be_asked:
            raise InputError("method", "a file has no candidates; leave it out, or give a model.")
        if not self.samples:
            raise InputError("method", "the decoding gives equal candidates; let it sample.")

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses, chosen from candidates, the first of which is the model's own response.

        The column CANDIDATES has the texts of all candidates for a prompt.
        """
        from evenhand.evaluation.models.styles import load_style_classifier

        classifier = load_style_classifier(self.classifier)
        for start in range(0, len(prompts), CHUNK):
            yield self._choose(classifier, prompts.iloc[start : start + CHUNK], tokens)

    def _choose(self, classifier: "Classifier", prompts: pd.DataFrame, tokens: range | None) -> pd.DataFrame:
        """Return the response to each prompt: the candidate in the style that is nearest to another person's."""
        from evenhand.evaluation.models.styles import classify_responses

        n = len(prompts)
        repeated = prompts.iloc[np.repeat(np.arange(n), self.candidates)].reset_index(drop=True)
        endings = ["", *(f"/{number}" for number in range(1, self.candidates))]
        ids = [f"{prompt_id}{ending}" for prompt_id in prompts[PROMPT_ID] for ending in endings]
        candidates = join_batches(self.model.respond(repeated.assign(**{PROMPT_ID: ids}), tokens))
        vectors = classify_responses(classifier, candidates[RESPONSE].tolist(), repeated)
        partners = partner_prompts(prompts).reset_index(drop=True)
        partners[PROMPT_ID] = partners[PROMPT_ID].astype(str) + "/other"
        others = join_batches(self.model.respond(partners, tokens))
        target = classify_responses(classifier, others[RESPONSE].tolist(), partner_rows(prompts))
        chosen = nearest_candidates(vectors.reshape(n, self.candidates, -1), target)
        texts = candidates[RESPONSE].to_numpy(dtype=object).reshape(n, self.candidates)
        responses = candidates.iloc[np.arange(n) * self.candidates + chosen].set_index(prompts.index)
        return responses.assign(**{PROMPT_ID: prompts[PROMPT_ID], CANDIDATES: list(texts)})


def with_partners(prompts: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the prompts with, beside each, the columns of another person's prompt, whose names begin with PARTNER.

    The other prompt has the same template and another descriptor (`other_people`); a prompt to whose template nobody
    else is asked is its own partner. Give the whole table of prompts: a part of it has other partners.
    """
    other = other_people(prompts, seed)
    partners = prompts.iloc[np.where(other < 0, np.arange(len(prompts)), other)]
    return prompts.join(partners.set_index(prompts.index).add_prefix(PARTNER))


def partner_rows(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the other person's prompt beside each prompt, with the names of its columns in its table."""
    names = [name for name in prompts if name.startswith(PARTNER)]
    return prompts[names].rename(columns=lambda name: name.removeprefix(PARTNER))


def partner_prompts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts as their partners ask them, whose partner is then the person; a prompt's id stays."""
    partners = prompts_of_others(prompts, partner_rows(prompts))
    names = [TEXT, PERSONA]
    return partners.assign(**{f"{PARTNER}{name}": prompts[name] for name in names if name in prompts})


def nearest_candidates(vectors: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the index of the candidate whose style vector is nearest to a target by Euclidean distance, (n,).

    Candidates whose vector is NaN are chosen last; for a target of NaN, the first candidate is returned.

    Args:
        vectors: style vectors of the candidates, (n, K, S).
        target: style vector of another response for each prompt, (n, S).
    """
    distance = ((vectors - target[:, None]) ** 2).sum(axis=2)
    return np.where(np.isnan(distance), np.inf, distance).argmin(axis=1)
