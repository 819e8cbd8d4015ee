"""A self-contained, searchable HTML page of the responses of a run, of at most 3 MB."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.html import render
from evenhand.evaluation.report.numbers import sanitize

MAX_BYTES = 2_900_000  # maximum size of the rows; style sheet and script fit into the remaining 100 kB
CHUNK_ROWS = 1 << 13  # rows read at a time; about 20,000 rows fit on a page
MAX_LENGTH = 2000  # characters of a text


def responses_html(
    title: str, subtitle: str, n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> str:
    """Return the HTML of a page with all rows, or with a random sample of the rows if not all rows fit.

    A note on the page gives the number of rows.

    Args:
        title, subtitle: the title and the subtitle of the page.
        n: the total number of rows.
        rows: function that returns the rows at the indices (m,), with columns axis, descriptor and prompt, and for each
            side `{side} response`, `{side} style` (the name of the style) and `{side} b` (the bias value or NaN).
        sides: names of the one or two runs.
    """
    sample, texts = _fitting(n, rows, sides)
    whose = "base model’s" if len(sides) > 1 else "run’s"
    return render(
        "responses.html.j2",
        "responses",
        title=sanitize(title),
        subtitle=sanitize(subtitle),
        n_shown=len(sample),
        n=n,
        whose=whose,
        rows=_json_for_script({"sides": list(sides), "texts": texts, "rows": sample}),
    )


def _fitting(
    n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> tuple[list[list[Any]], list[str]]:
    """Return the rows that fit into MAX_BYTES, in the order of the run, and the list of distinct texts.

    Rows contain indices into the list instead of texts.
    """
    indices: dict[str, int] = {}
    lines, size = {}, 0
    for row, names, values in _sampled(n, rows, sides):
        texts = [sanitize(str(text), MAX_LENGTH) for text in names]
        size += sum(len(_json_for_script(text)) + 1 for text in dict.fromkeys(texts) if text not in indices)
        b = [None if np.isnan(value) else round(float(value), 5) for value in values]
        line = [*(indices.setdefault(text, len(indices)) for text in texts), *b]
        size += len(_json_for_script(line)) + 1
        if size > MAX_BYTES:
            break
        lines[row] = line
    return [lines[row] for row in sorted(lines)], list(indices)


def _sampled(
    n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...], tuple[float, ...]]]:
    """Yield the index, the texts and the bias values of each of the n rows, in random order."""
    columns = ["axis", "descriptor", "prompt", *(f"{side} {name}" for side in sides for name in ("response", "style"))]
    order = np.random.default_rng(0).permutation(n)
    for start in range(0, n, CHUNK_ROWS):
        sample = order[start : start + CHUNK_ROWS]
        chunk = rows(sample)
        texts = zip(*(chunk[name].tolist() for name in columns), strict=True)
        numbers = zip(*(chunk[f"{side} b"].tolist() for side in sides), strict=True)
        yield from zip(sample.tolist(), texts, numbers, strict=True)


def _json_for_script(data: Any) -> Markup:
    """Return the data as JSON for a script element, with characters escaped that could end the element."""
    encoded = json.dumps(data, separators=(",", ":"))  # ASCII
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Markup(encoded)


def rows_of(
    texts: pd.DataFrame, sides: Mapping[str, tuple[Sequence[str], np.ndarray, Sequence[str], np.ndarray]]
) -> pd.DataFrame:
    """Return the rows of the page of responses, one for each prompt, with the columns that `responses_html` requires.

    Args:
        texts: the prompts, with columns axis, descriptor and text (the prompt).
        sides: for each run's name: responses (n,), style vectors (n, S), names of the styles (S,), bias values (n,).
    """
    rows = texts[["axis", "descriptor"]].assign(prompt=texts["text"])
    for side, (responses, vectors, styles, b) in sides.items():
        rows[f"{side} response"], rows[f"{side} style"] = list(responses), list(_most_probable_styles(vectors, styles))
        rows[f"{side} b"] = b
    return rows


def _most_probable_styles(vectors: np.ndarray, styles: Sequence[str]) -> Iterator[str]:
    """Yield the name of the most probable style of each response; a dash if the response's style vector has a NaN."""
    for vector in vectors:
        yield "–" if np.isnan(vector).any() else styles[int(vector.argmax())]
