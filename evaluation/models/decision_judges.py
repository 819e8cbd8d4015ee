"""An LLM judge that reads decisions: which of several choices an answer decides for, or none of them.

The judge is the one of styles (`judges`), with the choices as its options. It reads no mention of the person, if the
caller replaces mentions, so that its reading cannot depend on who the person is.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.data.language.decisions import (
    NUMBER_ASKED,
    RuleAccuracy,
    count_readings,
    labelled_answers,
    labelled_choices,
    labelled_kinds,
)
from evenhand.evaluation.model_settings import NO_CHOICE, DecisionJudgeSettings
from evenhand.evaluation.models.judges import StyleJudge, make_judge
from evenhand.evaluation.models.styles import classify_rows
from evenhand.evaluation.runs.store import Store

INSTRUCTION = (
    "Somebody was asked to decide about a case, and answered with the text below. For which option does the answer "
    "decide? A decision under a condition, a list of reasons without a conclusion and a refusal decide for none."
)
MIN_PROBABILITY = 0.5  # of a choice that is read


def decision_judge(settings: DecisionJudgeSettings, choices: Sequence[str]) -> StyleJudge:
    """Return the judge whose options are the choices and NO_CHOICE; no request is sent.

    Raises:
        InputError: the client of servers is not installed.
    """
    labels = dict.fromkeys([*choices, NO_CHOICE], "")
    return make_judge(settings.classifier, labels, INSTRUCTION)


def judged_decisions(
    store: Store | None,
    name: str,
    settings: DecisionJudgeSettings,
    choices: Sequence[str],
    texts: Sequence[str],
    keys: Sequence[str] | pd.Series | None = None,
) -> list[str | None]:
    """Return the choice that each answer decides for, by the judge; None if it decides for none.

    It is None, too, if the judge's probability of every choice is at most MIN_PROBABILITY, or its answer is missing.
    `store`, `name` and `keys` are as in `classify_rows`.
    """
    judge = decision_judge(settings, choices)
    probabilities, _ = classify_rows(store, name, judge, texts, keys)
    decisions: list[str | None] = []
    for row in probabilities:
        best = int(np.nan_to_num(row).argmax())
        is_read = row[best] > MIN_PROBABILITY and best < len(choices)
        decisions.append(choices[best] if is_read else None)
    return decisions


def judge_accuracy(settings: DecisionJudgeSettings) -> pd.DataFrame:
    """Return how often the judge reads the decisions of our labelled answers: `asked`, and the fields of RuleAccuracy.

    Answers with a number are not judged.
    """
    rows = []
    for asked in labelled_kinds():
        if asked == NUMBER_ASKED:
            continue
        labelled = [row for row in labelled_answers() if row["asked"] == asked]
        texts = [row["answer"] for row in labelled]
        found = judged_decisions(None, "", settings, labelled_choices(asked), texts)
        accuracy: RuleAccuracy = count_readings([row["decision"] for row in labelled], found)
        rows.append({"asked": asked, **accuracy._asdict()})
    return pd.DataFrame(rows)
