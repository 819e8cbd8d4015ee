"""Pairs and votes that the tests of the rating share."""

from pathlib import Path

import pandas as pd

from evenhand.evaluation.rating.pairs import sample_pairs
from evenhand.evaluation.rating.server import Rating
from evenhand.evaluation.rating.votes import Votes

QUESTIONS = {"preference": "Who is better?", "humanness": "Who is human?"}


def made_up_pairs(n: int, **own: list[str]) -> pd.DataFrame:
    """Return n pairs as two runs have them, on the axes "age" and "body" in turn."""
    columns = {
        "prompt_id": [f"p{i}" for i in range(n)],
        "axis": ["age", "body"] * (n // 2) + ["age"] * (n % 2),
        "descriptor": [f"d{i}" for i in range(n)],
        "template": ["t"] * n,
        "text": [f"I'm {i}." for i in range(n)],
        "before": [f"old {i}" for i in range(n)],
        "after": [f"new {i}" for i in range(n)],
        "offensive": [None] * n,
    }
    return pd.DataFrame(columns | own)


def rating(folder: Path, n: int = 2, **own: list[str]) -> Rating:
    """Return a rating of n pairs by two questions, whose votes go into the folder."""
    return Rating(sample_pairs(made_up_pairs(n, **own), n, 0), QUESTIONS, Votes(folder / "votes.jsonl"), 0)


def vote_table(choices: dict[str, dict[str, str]], question: str = "preference") -> pd.DataFrame:
    """Return votes from {rater: {prompt_id: "b", "a" or "-" for skipped}}; "before" is on the left, the axis is age."""
    meant = {"a": "after", "b": "before", "-": None}
    rows = [
        {
            "rater": rater,
            "prompt_id": pair,
            "question": question,
            "choice": meant[choice],
            "left": "before",
            "axis": "age",
        }
        for rater, of_pairs in choices.items()
        for pair, choice in of_pairs.items()
    ]
    return pd.DataFrame(rows)
