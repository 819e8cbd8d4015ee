"""A self-contained, searchable HTML page of the responses of a run, of at most 3 MB."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.html import render
from evenhand.evaluation.report.numbers import sanitize

MAX_BYTES = 2_900_000  # maximum size of the rows; style sheet and script fit into the remaining 100 kB
MAX_LENGTH = 2000  # characters of a text
Side = tuple[Sequence[str], np.ndarray, Sequence[str], np.ndarray]


def responses_html(title: str, subtitle: str, prompts: pd.DataFrame, sides: Mapping[str, Side]) -> str:
    """Return the HTML of a page with all rows, or with a random sample of the rows if not all rows fit.

    Args:
        prompts: n rows with the columns axis, descriptor and text.
        sides: for each run's name: responses (n,), style vectors (n, S), names of the styles (S,), bias values (n,),
            NaN for none.
    """
    n, size = len(prompts), 0
    texts = prompts[["axis", "descriptor", "text"]].to_numpy()
    answers = {name: np.asarray(responses, dtype=object) for name, (responses, *_) in sides.items()}
    rows: dict[int, Markup] = {}
    for row in np.random.default_rng(0).permutation(n).tolist():
        answered = [
            [_cut(answers[name][row]), _most_probable_style(vectors[row], styles), _rounded(b[row])]
            for name, (_, vectors, styles, b) in sides.items()
        ]
        line = _json_for_script([*map(_cut, texts[row]), answered])
        size += len(line) + 1
        if size > MAX_BYTES:
            break
        rows[row] = line
    data = Markup('{{"sides":{},"rows":[{}]}}').format(
        _json_for_script(list(sides)), Markup(",").join(rows[row] for row in sorted(rows))
    )
    whose = "base model’s" if len(sides) > 1 else "run’s"
    shown = {"title": sanitize(title), "subtitle": sanitize(subtitle), "n_shown": len(rows), "n": n, "whose": whose}
    return render("responses.html.j2", "responses", **shown, rows=data)


def _cut(text: Any) -> str:
    return sanitize(str(text), MAX_LENGTH)


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 5)


def _most_probable_style(vector: np.ndarray, styles: Sequence[str]) -> str:
    return "–" if np.isnan(vector).any() else sanitize(styles[int(vector.argmax())])


def _json_for_script(data: Any) -> Markup:
    """Return the data as JSON for a script element, with characters escaped that could end the element."""
    encoded = json.dumps(data, separators=(",", ":"))  # ASCII
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Markup(encoded)
