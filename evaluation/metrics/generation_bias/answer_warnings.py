"""Cautions about the answers of a run: what is missing, by whom it was asked, and who answered instead."""

from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import few_mentions
from evenhand.evaluation.data.language.other_text import labels, removable
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.data.readers.answers import FILTER_REASONS
from evenhand.evaluation.data.readers.cells import cells_with_lists
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.data.readers.response_logs import UNANSWERED
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS, RESPONSES, Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.classification import read_unread
from evenhand.evaluation.models.remote import ANSWERED_BY

MAX_REASONS = 5  # cautions about missing answers
MIN_REPEATED = 5  # prompts that are asked several times, from which on equal answers are worth a warning
MANY_OTHER = 0.01  # share of answers with other text that is worth a warning
MANY_EQUAL = 0.9  # share of these prompts whose answers are all equal that is worth a warning
# What took the place of answers, in `missing_answers`.
REASON = "reason"
NO_TEXT = "no text"
FILTER = "filter"


def answer_cautions(run: FamilyRun) -> list[Finding]:
    """Return the cautions about the answers of a run."""
    prompts = run.table(PROMPTS)
    responses = run.table(RESPONSES)
    model = run.config.open_model()
    found = []
    few = few_mentions(responses[columns.RESPONSE].tolist(), prompts)
    if few is not None:
        found.append(Finding("few_mentions", {"shares": few}))
    found += missing_answers(prompts, responses, counts_empty=not model.can_be_asked)
    found += reasoned(responses)
    found += other_models(prompts, responses)
    found += other_texts(prompts, responses)
    if not read_unread(run.folder):  # which has a caution of its own
        found += without_style(read_answers(run.folder, only=run.only))
    if model.can_be_asked and model.samples:
        found += equal_answers(prompts, responses)
    if not model.can_be_asked:
        found += [*unanswered(prompts, responses), *_alike(prompts), *several_people(prompts)]
    if (prompts[columns.TEMPLATE] == UNSPECIFIED).all():
        found.append(Finding("no_templates"))
    return found


def missing_answers(prompts: pd.DataFrame, responses: pd.DataFrame, *, counts_empty: bool = False) -> list[Finding]:
    """Return a finding for each reason why answers are missing, the most frequent first, with the number by person.

    Answers that a provider withheld have one finding. `counts_empty`: whether empty answers without a reason have one;
    a model that was asked may say nothing.
    """
    masks: list[tuple[str, str, pd.Series]] = []
    is_withheld = responses[columns.LEFT_OUT].isin(FILTER_REASONS)
    for reason in responses[columns.LEFT_OUT][~is_withheld].value_counts().index:
        masks.append((REASON, str(reason), responses[columns.LEFT_OUT] == reason))
    if counts_empty:
        masks.append((NO_TEXT, "", _is_blank(responses) & responses[columns.LEFT_OUT].isna()))
    masks.append((FILTER, "", is_withheld))
    present = [each for each in masks if each[2].any()]
    ordered = sorted(present, key=lambda each: -each[2].sum())
    found = []
    for what, reason, mask in ordered[:MAX_REASONS]:
        found.append(Finding("missing_answers", {"what": what, "reason": reason, **_whose(prompts, mask.to_numpy())}))
    if len(ordered) > MAX_REASONS:
        found.append(Finding("more_reasons", {"n_reasons": len(ordered) - MAX_REASONS}))
    return found


def _whose(prompts: pd.DataFrame, mask: np.ndarray) -> dict[str, Any]:
    """Return the number of rows of a mask, (n,) bool, of how many, and of each descriptor, the largest shares first."""
    counts = pd.DataFrame({"name": prompts[columns.DESCRIPTOR].astype(str).to_numpy(), "mask": mask})
    by_name = counts.groupby("name", sort=False)["mask"].agg(["sum", "size"])
    by_name = by_name[by_name["sum"] > 0]
    by_name["share"] = by_name["sum"] / by_name["size"]
    by_name = by_name.sort_values(["share", "sum"], ascending=False, kind="stable")
    people = [{"name": str(name), "n": int(n), "n_of": int(size)} for name, n, size, _ in by_name.itertuples()]
    return {"n": int(mask.sum()), "n_of": len(mask), "people": people}


def reasoned(responses: pd.DataFrame) -> list[Finding]:
    """Return [how many answers had reasoning, and how many never ended it], or [] if none had."""
    n = int(responses[columns.REASONED].sum()) if columns.REASONED in responses else 0
    if not n:
        return []
    n_unfinished = int((responses[columns.LEFT_OUT] == UNFINISHED_REASONING).sum())
    return [Finding("reasoned", {"n": n, "n_of": len(responses), "n_unfinished": n_unfinished})]


def other_models(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[Finding]:
    """Return a finding for each model that answered, except the most frequent one, with the people it answered."""
    if ANSWERED_BY not in responses:
        return []
    names = responses[ANSWERED_BY].where(responses[columns.LEFT_OUT].isna())
    counts = names.value_counts()
    found = []
    for other in counts.index[1:]:
        whose = _whose(prompts, (names == other).to_numpy())
        models = {"model_name": str(other), "most": str(counts.index[0])}
        found.append(Finding("other_model", {**whose, **models, "n_of": int(counts.sum())}))
    return found


def other_texts(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[Finding]:
    """Return a finding for each kind of other text in the answers, the most frequent first: how many, and whose.

    A kind has one if MANY_OTHER of all answers have it, or half of a person's, two at least.
    """
    if columns.OTHER_TEXT not in responses:
        return []
    kinds = responses[columns.OTHER_TEXT].fillna("").str.split()
    person = prompts[columns.DESCRIPTOR].astype(str).to_numpy()
    masks = {}
    for name in sorted({name for names in kinds for name in names}):
        has_kind = np.array([name in names for names in kinds])
        by_person = pd.Series(has_kind).groupby(person).agg(["sum", "mean"])
        is_of_somebody = ((by_person["mean"] >= 0.5) & (by_person["sum"] > 1)).any()
        if has_kind.mean() >= MANY_OTHER or is_of_somebody:
            masks[name] = has_kind
    found = []
    for name, has_kind in sorted(masks.items(), key=lambda item: -item[1].sum())[:MAX_REASONS]:
        what = {"name": name, "label": labels()[name], "is_removable": name in removable()}
        found.append(Finding("other_text", {**_whose(prompts, has_kind), **what}))
    return found


def without_style(responses: Answers) -> list[Finding]:
    """Return [the answers that the style classifier gave no style], or [] if all have one."""
    is_without = responses.is_nonempty() & ~responses.has_value()
    if not is_without.any():
        return []
    return [Finding("without_style", _whose(responses.table, is_without))]


def equal_answers(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[Finding]:
    """Return [a finding] if the answers to nearly all prompts that were asked several times are equal, else []."""
    key = [prompts[name].to_numpy() for name in (columns.TEXT, columns.PERSONA) if name in prompts]
    answers = responses[columns.RESPONSE].mask(_is_blank(responses)).groupby(key)
    table = answers.agg(["nunique", "count"])
    repeated = table[table["count"] > 1]
    n_equal = int((repeated["nunique"] == 1).sum())
    if len(repeated) < MIN_REPEATED or n_equal < MANY_EQUAL * len(repeated):
        return []
    return [Finding("equal_answers", {"n": n_equal, "n_of": len(repeated)})]


def unanswered(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[Finding]:
    """Return [the chats that end with a message of the user that nobody answered], or []."""
    if UNANSWERED not in responses or not responses[UNANSWERED].any():
        return []
    return [Finding("unanswered", _whose(prompts, responses[UNANSWERED].to_numpy(dtype=bool)))]


def several_people(prompts: pd.DataFrame) -> list[Finding]:
    """Return [the descriptors that are lists of several people], or []."""
    lists = cells_with_lists(prompts[columns.DESCRIPTOR].astype(str).tolist())
    return [Finding("several_people", {"names": list(lists)})] if lists else []


def _is_blank(responses: pd.DataFrame) -> pd.Series:
    return responses[columns.RESPONSE].str.strip() == ""


def _alike(prompts: pd.DataFrame) -> list[Finding]:
    """Return [the descriptors that differ only in case, hyphens, apostrophes or spaces], or []."""
    names = prompts[columns.DESCRIPTOR].astype(str).drop_duplicates()
    spelled = names.str.casefold().str.replace(r"[\s_\-‐-―'’]+", " ", regex=True).str.strip()
    alike = names.groupby(spelled).filter(lambda group: len(group) > 1)
    return [Finding("alike", {"names": alike.tolist()})] if len(alike) else []
