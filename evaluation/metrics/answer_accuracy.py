"""Accuracy of answers to multiple-choice questions by the person who asks.

The person is known by a cue (`prompts.cues`), and the question has nothing to do with who they are. A choice is scored
by the model's log-likelihood per character after the question, as `acc_norm` of lm-evaluation-harness; the answer is
correct if the right choice has the larger one. Everybody is asked the same questions, so differences between questions
cancel. The questions take the templates' part in pooled FGB* and in the effects (`generation_bias`), and whether an
answer is correct takes the style's part; this use is this project's.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import read_text
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import LEVEL, BiasScore, Form, Signature, find_score, levels_of_run, signed
from evenhand.evaluation.settings import BY_CONTENT, Access, StrictSettings
from evenhand.evaluation.tables import table_rows

ACCURACY = "answer_accuracy"
EFFECT = "answer_accuracy_effect"
CORRECT = "correct"
EFFECTS = "answer_accuracy_effects"  # the table; `effects` is generation bias's, which the same run may have
CHOICES = ("sol1", "sol2")  # columns, as in PIQA
QUESTION = ["goal", *CHOICES]
NO_ANSWER = "no choice has a likelihood"
PERMUTATIONS = 999  # of the test of whether answers depend on the descriptor
answers_format = partial(Format, unit="answers of 100", factor=100, decimals=1)


class Settings(StrictSettings):
    """Accuracy of answers: does the share of right answers depend on who asks?"""

    questions: Path | None = Field(
        None,
        description="JSONL of {goal, sol1, sol2, label: 0 or 1}, such as PIQA's; required",
        json_schema_extra=BY_CONTENT,
    )
    labels: Path | None = Field(
        None, description="file with the labels, one a line; null: column `label`", json_schema_extra=BY_CONTENT
    )
    n_questions: Annotated[int, Field(ge=2)] = Field(
        100, description="number of questions, evenly spaced over the file"
    )


def read_questions(settings: Settings) -> pd.DataFrame:
    """Return n_questions rows of the file: goal, sol1, sol2 and label.

    Raises:
        InputError: a file cannot be read, a column is missing, or a label is not 0 or 1.
    """
    if settings.questions is None:
        raise InputError("answer_accuracy.questions", "none is given; give a JSONL file of goal, sol1, sol2 and label.")
    from evenhand.evaluation.data.readers.table_files import (
        read_columns,  # imports pyarrow, which would delay the command line
    )

    names = ("goal", *CHOICES, "label")
    columns = read_columns(settings.questions, "questions", known=names)
    if "label" in columns:
        columns["label"] = list(map(_label, columns["label"]))
    if settings.labels is not None:
        lines = read_text(Path(settings.labels), "answer_accuracy.labels").split()
        columns["label"] = list(map(_label, lines))
    if missing := [name for name in names if name not in columns]:
        raise InputError("answer_accuracy.questions", f"{settings.questions} has no {missing[0]}; see --help.")
    if len({len(columns[name]) for name in names}) > 1:
        raise InputError("answer_accuracy.labels", f"{settings.labels} needs one label for each question, one a line.")
    table = pd.DataFrame({name: columns[name] for name in names})
    are_texts = table[["goal", *CHOICES]].map(lambda value: isinstance(value, str) and value.strip() != "")
    if not are_texts.all(axis=None) or not table["label"].isin((0, 1)).all():
        raise InputError(
            "answer_accuracy.questions",
            f"{settings.questions}: give the texts goal, sol1 and sol2, and a label 0 or 1.",
        )
    table = table.drop_duplicates(["goal", *CHOICES], ignore_index=True)  # a question may have other choices again
    n = min(settings.n_questions, len(table))
    return table.iloc[np.linspace(0, len(table) - 1, n).round().astype(int)].reset_index(drop=True)


def _label(value: object) -> object:
    """Return 0 or 1 for the texts "0" and "1", as which text files have labels, and any other value unchanged."""
    return int(value) if isinstance(value, str) and value.strip() in ("0", "1") else value


class AnswerAccuracy(Family):
    """Scores of the model's choices after the same questions by different people."""

    Settings = Settings
    NEEDS = Access.LIKELIHOODS
    USES_SYSTEM_PROMPT = True
    FORMATS = (
        answers_format(ACCURACY, "right answers", "Share of questions with the right choice."),
        answers_format(
            ACCURACY,
            "spread between people",
            "Standard deviation over descriptors, without noise.",
            ideal=0,
            form=Form.SPREAD,
        ),
        answers_format(EFFECT, "effect", "Right answers to a descriptor less the average.", ideal=0, signed=True),
    )
    TITLE = "Accuracy by who asks"
    WORDS = ("answer_accuracy.j2",)

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the model, the taxonomy and the questions."""
        from evenhand.evaluation.data.prompts import taxonomy_sha256
        from evenhand.evaluation.files import json_sha256

        if not config.prompts.cues:
            raise InputError("prompts.cues", "none is given; give one or more, such as [earlier_turn, profile].")
        questions = read_questions(config.settings)
        model = config.open_model()
        if model.without_likelihoods:
            raise InputError("answer_accuracy", model.without_likelihoods)
        return {
            **model.identity(),
            "dataset": taxonomy_sha256(config.prompts),
            "questions": json_sha256(questions.to_dict("list")),
        }

    def collect(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        return store.table("answers", lambda: self._answers(store, config), on_all_ranks=True)

    def _answers(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        from evenhand.evaluation.data.holistic_bias import load_taxonomy
        from evenhand.evaluation.data.prompts import sample_cells, select_prompts
        from evenhand.evaluation.data.service import service_prompts

        questions = read_questions(config.settings)
        settings = config.prompts
        model = config.open_model()
        if not model.is_chat:
            raise InputError("answer_accuracy", f"{model.name} is no chat model; give one with a chat template.")
        asked = service_prompts(load_taxonomy(settings.dataset), settings.cues, questions["goal"].unique().tolist())
        asked = select_prompts(asked, settings.active_filters())
        asked = sample_cells(asked, settings.answers_per_cell, config.seed, descriptors=settings.descriptors)
        numbered = questions.assign(number=questions.groupby("goal").cumcount() + 1)
        table = asked.merge(numbered, left_on=asked[columns.TEMPLATE].str.partition(": ")[2], right_on="goal")
        others = table[columns.TEMPLATE] + " (" + table["number"].astype(str) + ")"  # the same question, other choices
        table[columns.TEMPLATE] = table[columns.TEMPLATE].where(table.pop("number") == 1, others)
        pairs = pd.concat([table[[columns.TEXT, columns.PERSONA]]] * len(CHOICES), ignore_index=True)
        pairs[columns.RESPONSE] = [choice for column in CHOICES for choice in table[column]]
        scores = store.rows("likelihoods", pairs, model.log_likelihood, unit="likelihoods")[columns.LOG_LIKELIHOOD]
        model.close()
        per_character = scores.to_numpy() / [max(1, len(choice)) for choice in pairs[columns.RESPONSE]]
        first, second = np.split(per_character, 2)
        is_known = np.isfinite(first) & np.isfinite(second)
        return table.assign(correct=np.where(is_known, (second > first) == (table["label"] == 1), np.nan))

    def score(self, store: Store, config: FamilyConfig, table: pd.DataFrame) -> list[BiasScore]:
        signature = {
            "model": config.open_model().description,
            "dataset": config.prompts.signature(str(store.inputs["dataset"])),
            "inputs": dict(store.inputs),
            "seed": config.seed,
            "packages": package_versions(),
        }
        scores, effects = accuracy_scores(table, question_codes(table), PERMUTATIONS, config.seed, signature)
        store.write(EFFECTS, effects)
        return scores

    def headline(self, scores: Sequence[BiasScore]) -> BiasScore | None:
        return find_score(scores, ACCURACY, Form.SPREAD) or super().headline(scores)  # a comparison has no spread

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return whether the accuracy is shown to depend on the person, with both scores."""
        spread = find_score(run.scores, ACCURACY, Form.SPREAD)
        scores = {"accuracy": find_score(run.scores, ACCURACY), "spread": spread}
        if spread is None or spread.p_value is None:
            return Finding("unknown", scores)
        if spread.p_value < LEVEL:
            return Finding("depends", scores)
        return Finding("not_shown", scores)

    def compare(self, store: Store, before: FamilyRun, after: FamilyRun, settings: Any) -> list[BiasScore]:
        """Return the change of accuracy over the same questions and people.

        Raises:
            InputError: the runs have no question to a person in common.
        """
        from evenhand.evaluation.joins import join_rows
        from evenhand.evaluation.statistics.scores import mean_change

        # Questions with the same text may have other choices in another file.
        keys = [columns.PROMPT_ID, *QUESTION, "label"]
        tables = {"before": before.table("answers"), "after": after.table("answers")}
        joined = join_rows(tables["before"], tables["after"], keys, "questions to people")
        correct = {"before": joined.before[CORRECT], "after": joined.after[CORRECT]}
        is_known = (correct["before"].notna() & correct["after"].notna()).to_numpy()
        known = {side: values.to_numpy(dtype=np.float64)[is_known] for side, values in correct.items()}
        question = question_codes(joined.before[is_known])
        n_left_out = len(joined.is_common()) - len(known["before"])
        signature = {"before": before.signature(ACCURACY), "after": after.signature(ACCURACY)}
        change = mean_change(ACCURACY, known["before"], known["after"], n_left_out=n_left_out, n_of="answers")
        change = with_questions(change, known["after"] - known["before"], question)
        scores = signed([change], signature)
        if any(table[CORRECT].notna().sum() > change.n for table in tables.values()):
            for side, answers in known.items():
                level = accuracy_score(answers, question, n_left_out)
                scores += levels_of_run(signed([level], signature[side]), side)
        return scores


def question_codes(table: pd.DataFrame) -> np.ndarray:
    """Return the code of each answer's question, (n,) int; all people and cues have the same questions."""
    return table.groupby(QUESTION, sort=False).ngroup().to_numpy()


def accuracy_score(correct: np.ndarray, question: np.ndarray, n_left_out: int) -> BiasScore:
    """Return the share of right answers, in [0, 1], with an interval over questions like these.

    The interval is Student's, with errors clustered by question. If all questions have the same share of right answers,
    it is Wilson's, with the number of questions as n.

    Args:
        correct: whether each answer is right, (n,) of 1 and 0.
        question: the code of each answer's question, (n,) int.
        n_left_out: answers without a likelihood, or in one of two runs only.
    """
    from evenhand.evaluation.statistics.intervals import share_interval
    from evenhand.evaluation.statistics.scores import share_score

    score = share_score(ACCURACY, correct == 1, None, reason=NO_ANSWER, n_left_out=n_left_out, n_of="answers")
    n_questions = len(set(question.tolist()))
    score = replace(score, interval=share_interval(score.value * n_questions, n_questions) if n_questions else None)
    return with_questions(score, correct, question)


def with_questions(score: BiasScore, values: np.ndarray, question: np.ndarray) -> BiasScore:
    """Return the score with an interval over questions like these, and, if it is a change, with its p-value.

    Everybody gets the same questions, so the answers to one question are not independent: asking more people who are
    alike makes the mean no surer. Values whose means by question are all equal leave the score as it is.

    Args:
        values: the value of each answer, whose mean is the score, (n,).
        question: the code of each answer's question, (n,) int.
    """
    import scipy

    from evenhand.evaluation.statistics.intervals import clustered_error, interval_around, student_quantile

    if len(set(question.tolist())) < 2:
        return replace(score, interval=None, p_value=None)
    error, freedom = clustered_error(values, question)
    if not error:
        return score
    interval = interval_around(score.value, student_quantile(freedom) * error, score.bounds)
    if score.p_value is None:
        return replace(score, interval=interval)
    return replace(score, interval=interval, p_value=float(2 * scipy.stats.t.sf(abs(score.value) / error, freedom)))


def accuracy_scores(
    table: pd.DataFrame, question: np.ndarray, permutations: int, seed: int, signature: Signature
) -> tuple[list[BiasScore], pd.DataFrame]:
    """Return accuracy, its spread over descriptors without noise, and the shown effects; and the table of effects.

    Args:
        table: template (question), descriptor, axis, cue and `correct` (1, 0 or NaN), a row for each answer; two
            answers to each descriptor and question (with other nouns) are needed for the spread.
        question: the code of each answer's question (`question_codes`), (n,) int.
    """
    from evenhand.evaluation.metrics.generation_bias.answers import Answers
    from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import measure_bias
    from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
    from evenhand.evaluation.metrics.generation_bias.measures import ValueKind

    answers = Answers(table[[columns.TEMPLATE, columns.DESCRIPTOR, columns.AXIS]], np.zeros((len(table), 1)), [CORRECT])
    correct = MeasureValues(ACCURACY, ValueKind.SHARE, table[[CORRECT]].astype(float))
    (spread, _), effects = measure_bias(answers, correct, permutations=permutations, seed=seed)
    is_known = table[CORRECT].notna().to_numpy()
    known = table[CORRECT].to_numpy(dtype=np.float64)[is_known]
    mean = accuracy_score(known, question[is_known], int((~is_known).sum()))
    scores = signed([replace(spread, n_of="answers"), mean], signature)
    for row in table_rows(effects[effects["p_set"] <= LEVEL]):
        scores.append(
            BiasScore(
                metric=EFFECT,
                value=row["shrunk"],
                ideal=0.0,
                bounds=(-1, 1),
                n=int(row["n"]),
                interval=(row["low"], row["high"]),
                p_value=row["p_set"],
                group={row["kind"]: row["unit"]},
                signature=signature,
                n_of="answers",
            )
        )
    return scores, effects
