"""Errors of the language of an answer: how many short answers are called one in another language than their request.

$ python -m benchmarks.language_errors    # seconds

The 638 answers were written for this table, and labelled by who wrote them, without native speakers:
answer_languages.csv, and the file of this name that the tests read. “Likeliest” calls an answer one in the language
that py3langid finds likeliest.
"""

from pathlib import Path

import pandas as pd
from py3langid import classify

from benchmarks.measuring import parse_options
from evenhand.evaluation.metrics.generation_bias.measures.language import TOO_SHORT, text_language
from evenhand.evaluation.metrics.generation_bias.measures.other_language import is_in_other_language

FOLDER = Path(__file__).resolve().parent
NAME = "answer_languages.csv"
TESTED = FOLDER.parent / "tests" / "evaluation" / "metrics" / "generation_bias" / "measures" / NAME


def is_likeliest_another(answer: str, request: str) -> bool:
    """Return whether an answer that is long enough is likeliest in another language than that of its request."""
    return text_language(answer) != TOO_SHORT and classify(answer)[0] != request


def main() -> None:
    """Print how many answers of each kind are called ones in another language, by the likeliest and as measured."""
    parse_options(__doc__)
    answers = pd.concat([pd.read_csv(path, keep_default_na=False) for path in (FOLDER / NAME, TESTED)])
    rows = list(zip(answers["answer"], answers["request"], strict=True))
    answers["likeliest"] = [is_likeliest_another(answer, request) for answer, request in rows]
    answers["measured"] = [is_in_other_language(answer, (request,)) for answer, request in rows]
    answers["request"] = answers["request"].where(answers["request"] == "en", "another")
    kinds = answers.groupby(["request", "expected", "kind"])
    table = kinds[["likeliest", "measured"]].sum().assign(n=kinds.size())
    print(table.to_string())
    print(table.groupby(["request", "expected"]).sum().to_string())


if __name__ == "__main__":
    main()
