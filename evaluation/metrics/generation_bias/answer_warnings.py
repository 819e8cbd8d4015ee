"""Warnings of reports about the answers of a run: what is missing, by whom it was asked, and who answered instead."""

import numpy as np
import pandas as pd

from evenhand.evaluation.data.answers import FILTER_REASONS
from evenhand.evaluation.data.cells import cells_with_lists
from evenhand.evaluation.data.mentions import few_mentions_text
from evenhand.evaluation.data.other_text import labels, removable
from evenhand.evaluation.data.response_files import UNSPECIFIED
from evenhand.evaluation.data.response_logs import UNANSWERED
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import (
    PROMPTS,
    RESPONSES,
    Answers,
    read_answers,
)
from evenhand.evaluation.metrics.generation_bias.parts.quality import reasoning_text
from evenhand.evaluation.metrics.generation_bias.people import MAX_NAME
from evenhand.evaluation.models.served import ANSWERED_BY
from evenhand.evaluation.report.numbers import first_of, sanitize
from evenhand.evaluation.score import DESCRIPTOR, LEFT_OUT, OTHER_TEXT, PERSONA, RESPONSE, TEMPLATE, TEXT

MAX_NAMED = 8  # people in a warning
MAX_REASONS = 5  # sentences about missing answers
MIN_REPEATED = 5  # prompts that are asked several times, from which on equal answers are worth a warning
MANY_OTHER = 0.01  # share of answers with other text that is worth a warning
MANY_EQUAL = 0.9  # share of these prompts whose answers are all equal that is worth a warning


def answer_warnings(run: FamilyRun) -> list[str]:
    """Return the warnings about the answers of a run, one sentence each."""
    prompts = run.table(PROMPTS)
    responses = run.table(RESPONSES)
    model = run.config.open_model()
    texts = few_mentions_text(responses[RESPONSE].tolist(), prompts)
    texts += missing_text(prompts, responses, counts_empty=not model.can_be_asked)
    texts += reasoning_text(responses)
    texts += other_model_text(prompts, responses)
    texts += other_text_warnings(prompts, responses)
    texts += no_style_text(read_answers(run.folder))
    if model.can_be_asked and model.samples:
        texts += equal_answers_text(prompts, responses)
    if not model.can_be_asked:
        texts += [*unanswered_text(prompts, responses), *_alike_text(prompts), *several_people_text(prompts)]
    if (prompts[TEMPLATE] == UNSPECIFIED).all():
        texts.append(
            "The file has no column template: a difference between descriptors may be a difference in what people ask."
        )
    return texts


def missing_text(prompts: pd.DataFrame, responses: pd.DataFrame, *, counts_empty: bool = False) -> list[str]:
    """Return a sentence for each reason why answers are missing, the most frequent first: how many, and whose.

    Answers that a provider withheld have one sentence. `counts_empty`: whether empty answers without a reason have a
    sentence; a model that was asked may say nothing.
    """
    masks: dict[str, pd.Series] = {}
    is_withheld = responses[LEFT_OUT].isin(FILTER_REASONS)
    for reason in responses[LEFT_OUT][~is_withheld].value_counts().index:
        masks[f"“{sanitize(str(reason), MAX_NAME)}” took the place of"] = responses[LEFT_OUT] == reason
    if counts_empty:
        masks["The file has no text in the place of"] = _is_blank(responses) & responses[LEFT_OUT].isna()
    masks["A filter of the provider withheld"] = is_withheld
    found = {start: mask.to_numpy() for start, mask in masks.items() if mask.any()}
    ordered = sorted(found.items(), key=lambda item: -item[1].sum())
    texts = []
    for start, mask in ordered[:MAX_REASONS]:
        texts.append(f"{start} {mask.sum():,} of {len(mask):,} answers: {people_of(prompts, mask)}.")
    if len(ordered) > MAX_REASONS:
        texts.append(f"Answers are missing for {len(ordered) - MAX_REASONS} more reasons; see responses.parquet.")
    return texts


def people_of(prompts: pd.DataFrame, mask: np.ndarray) -> str:
    """Return how many rows of the mask, (n,) bool, each descriptor has, of how many: the largest shares first."""
    counts = pd.DataFrame({"name": prompts[DESCRIPTOR].astype(str).to_numpy(), "mask": mask})
    by_name = counts.groupby("name", sort=False)["mask"].agg(["sum", "size"])
    by_name = by_name[by_name["sum"] > 0]
    by_name["share"] = by_name["sum"] / by_name["size"]
    by_name = by_name.sort_values(["share", "sum"], ascending=False, kind="stable")
    names = [f"{sanitize(str(name), MAX_NAME)} {n:,} of {size:,}" for name, n, size, _ in by_name.itertuples()]
    return first_of(names, MAX_NAMED)


def other_model_text(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[str]:
    """Return a sentence for each model that answered beside the one that answered most, with the people."""
    if ANSWERED_BY not in responses:
        return []
    names = responses[ANSWERED_BY].where(responses[LEFT_OUT].isna())
    counts = names.value_counts()
    texts = []
    for other in counts.index[1:]:
        people = people_of(prompts, (names == other).to_numpy())
        texts.append(
            f"Another model, {sanitize(str(other), MAX_NAME)}, gave {counts[other]:,} of {counts.sum():,} answers: "
            f"{people}. {sanitize(str(counts.index[0]), MAX_NAME)} gave the most; a difference between people may be "
            "one between models."
        )
    return texts


def other_text_warnings(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[str]:
    """Return a sentence for each kind of other text in the answers, the most frequent first: how many, and whose.

    A kind has one if MANY_OTHER of all answers have it, or half of a person's, two at least.
    """
    if OTHER_TEXT not in responses:
        return []
    kinds = responses[OTHER_TEXT].fillna("").str.split()
    person = prompts[DESCRIPTOR].astype(str).to_numpy()
    found = {}
    for name in sorted({name for names in kinds for name in names}):
        has_kind = np.array([name in names for names in kinds])
        by_person = pd.Series(has_kind).groupby(person).agg(["sum", "mean"])
        is_of_somebody = ((by_person["mean"] >= 0.5) & (by_person["sum"] > 1)).any()
        if has_kind.mean() >= MANY_OTHER or is_of_somebody:
            found[name] = has_kind
    texts = []
    for name, has_kind in sorted(found.items(), key=lambda item: -item[1].sum())[:MAX_REASONS]:
        fix = f"--model.strip '[{name}]' removes it from the answers of a server or a file."
        if name not in removable():
            fix = "Ask again, or mend the file."
        texts.append(
            f"{has_kind.sum():,} of {len(has_kind):,} answers contain {labels()[name]}, which is measured as a part of "
            f"them: {people_of(prompts, has_kind)}. {fix}"
        )
    return texts


def no_style_text(responses: Answers) -> list[str]:
    """Return [a sentence] on answers that the style classifier gave no style, unless all or none have one, else []."""
    has_style = responses.has_value()
    is_without = responses.is_nonempty() & ~has_style
    if not is_without.any() or not has_style.any():  # a classifier that reads nothing has a warning of its own
        return []
    return [
        f"{is_without.sum():,} of {len(is_without):,} answers have no style, since the classifier gave none: "
        f"{people_of(responses.table, is_without)}."
    ]


def equal_answers_text(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[str]:
    """Return [a sentence] if the answers to nearly all prompts that were asked several times are equal, else []."""
    key = [prompts[name].to_numpy() for name in (TEXT, PERSONA) if name in prompts]
    answers = responses[RESPONSE].mask(_is_blank(responses)).groupby(key)
    table = answers.agg(["nunique", "count"])
    repeated = table[table["count"] > 1]
    n_equal = int((repeated["nunique"] == 1).sum())
    if len(repeated) < MIN_REPEATED or n_equal < MANY_EQUAL * len(repeated):
        return []
    return [
        f"The answers to {n_equal:,} of {len(repeated):,} prompts that were asked several times are all equal: a cache "
        "answers, or seed and temperature are ignored. Such answers are copies, not draws; ask once "
        "(--prompts.answers_per_cell 1), or turn the cache off."
    ]


def unanswered_text(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[str]:
    """Return [a sentence] on chats that end with a message of the user that nobody answered, or []."""
    if UNANSWERED not in responses or not responses[UNANSWERED].any():
        return []
    is_unanswered = responses[UNANSWERED].to_numpy(dtype=bool)
    return [
        f"{is_unanswered.sum():,} of {len(is_unanswered):,} chats end with a message that nobody answered; the last "
        f"message with an answer is compared: {people_of(prompts, is_unanswered)}."
    ]


def several_people_text(prompts: pd.DataFrame) -> list[str]:
    """Return [a sentence] on descriptors that are lists of several people, or []."""
    lists = cells_with_lists(prompts[DESCRIPTOR].astype(str).tolist())
    if not lists:
        return []
    shown = first_of([f"“{sanitize(name, MAX_NAME)}”" for name in lists], MAX_NAMED)
    return [
        f"Descriptors that list several people count as {len(lists):,} more people: {shown}. If they are no "
        "combinations of your own, write one person a row."
    ]


def _is_blank(responses: pd.DataFrame) -> pd.Series:
    return responses[RESPONSE].str.strip() == ""


def _alike_text(prompts: pd.DataFrame) -> list[str]:
    """Return [a sentence] on descriptors that differ only in case or outer spaces, or []."""
    names = prompts[DESCRIPTOR].astype(str).drop_duplicates()
    alike = names.groupby(names.str.strip().str.lower()).filter(lambda group: len(group) > 1)
    if not len(alike):
        return []
    listed = first_of([f"“{sanitize(name, MAX_NAME)}”" for name in alike], MAX_NAMED)
    return [f"Descriptors that differ only in case or outer spaces count as different people: {listed}."]
