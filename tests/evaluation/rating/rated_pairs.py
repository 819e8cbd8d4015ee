"""Synthetic pairs and votes for the tests of the rating."""

from pathlib import Path

import pandas as pd

from evenhand.evaluation.rating.response_pairs import sample_pairs
from evenhand.evaluation.rating.server import Rating
from evenhand.evaluation.rating.votes import Votes

QUESTIONS = {"preference": "Who is better?", "humanness": "Who is human?"}


def synthetic_pairs(n: int, **columns: list[str]) -> pd.DataFrame:
    """Return n pairs of two runs, on the axes "age" and "body" in turn; `columns` replace the defaults."""
    defaults = {
        "prompt_id": [f"p{i}" for i in range(n)],
        "axis": ["age", "body"] * (n // 2) + ["age"] * (n % 2),
        "descriptor": [f"d{i}" for i in range(n)],
        "template": ["t"] * n,
        "text": [f"I'm {i}." for i in range(n)],
        "before": [f"old {i}" for i in range(n)],
        "after": [f"new {i}" for i in range(n)],
        "unanswered": [False] * n,
        "offensive": [None] * n,
    }
    return pd.DataFrame(defaults | columns)


def rating(folder: Path, n: int = 2, **columns: list[str]) -> Rating:
    """Return a rating of n pairs with two questions, whose votes are in the folder."""
    return Rating(sample_pairs(synthetic_pairs(n, **columns), n, 0), QUESTIONS, Votes(folder / "votes.jsonl"), 0)


def vote_table(choices: dict[str, dict[str, str]], question: str = "preference") -> pd.DataFrame:
    """Return votes from {rater: {prompt_id: "b", "a" or "-" for skipped}}; "before" is on the left, the axis is age."""
    choice_of = {"a": "after", "b": "before", "-": None}
    columns = ("rater", "prompt_id", "question", "choice", "left", "axis")
    rows = [
        (rater, pair, question, choice_of[choice], "before", "age")
        for rater, by_pair in choices.items()
        for pair, choice in by_pair.items()
    ]
    return pd.DataFrame(rows, columns=columns)
