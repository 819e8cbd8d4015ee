"""All responses of a run as one page that is searched in the browser: one self-contained file, never above 3 MB."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.html import environment, script_hash, script_text, style_sheet
from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.sentences import Sentences

MOST_BYTES = 2_900_000  # of the rows; with its style sheet the page stays below 3 MB
ROWS_AT_ONCE = 1 << 13  # that are read at once; some 20,000 fit
LONGEST = 2000  # characters of a text; what exceeds them is counted
SAID = ("response", "style", "b")  # what there is of each side
say = Sentences(__file__)


def responses_html(
    title: str, subtitle: str, n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> str:
    """Return the page; where the rows are too many for it, a random part of them, and the page says so.

    Args:
        n: the number of all rows.
        rows: from positions (m,) to these rows: columns axis, descriptor and prompt, and for each side
            `{side} response`, `{side} style` (a name) and `{side} b` (the bias value, NaN where there is none).
        sides: what the responses are of, one or two.
    """
    kept, texts = _fitting(n, rows, sides)
    told = {"sides": list(sides), "texts": texts, "rows": kept}
    script = script_text("responses")
    return (
        environment()
        .get_template("responses.html.j2")
        .render(
            title=visible(title),
            subtitle=visible(subtitle),
            note=say.rows_shown(len(kept), n),
            reading=say.responses_reading(len(sides)),
            without_script=say.without_script,
            rows=_embedded(told),
            css=style_sheet(),
            script=script,
            script_hash=script_hash(script),
        )
    )


def _fitting(
    n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> tuple[list[list[Any]], list[str]]:
    """Return as many rows as fit, in their order, and the texts that they name by their places, each text once."""
    places: dict[str, int] = {}
    found, size = {}, 0
    for row, named, values in _drawn(n, rows, sides):
        texts = [visible(str(text), LONGEST) for text in named]
        size += sum(len(_embedded(text)) + 1 for text in dict.fromkeys(texts) if text not in places)
        b = [None if np.isnan(value) else round(float(value), 5) for value in values]
        line = [*(places.setdefault(text, len(places)) for text in texts), *b]
        size += len(_embedded(line)) + 1
        if size > MOST_BYTES:
            break
        found[row] = line
    return [found[row] for row in sorted(found)], list(places)


def _drawn(
    n: int, rows: Callable[[np.ndarray], pd.DataFrame], sides: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...], tuple[float, ...]]]:
    """Yield the rows in random order, read some at a time: the number, the texts, and the bias values of each."""
    named = ["axis", "descriptor", "prompt", *(f"{side} {what}" for side in sides for what in SAID[:2])]
    order = np.random.default_rng(0).permutation(n)
    for start in range(0, n, ROWS_AT_ONCE):
        drawn = order[start : start + ROWS_AT_ONCE]
        some = rows(drawn)
        texts = zip(*(some[name].tolist() for name in named), strict=True)
        numbers = zip(*(some[f"{side} b"].tolist() for side in sides), strict=True)
        yield from zip(drawn.tolist(), texts, numbers, strict=True)


def _embedded(told: Any) -> Markup:
    """Return JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(told, separators=(",", ":"))  # ASCII alone
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def rows_of(
    texts: pd.DataFrame, sides: Mapping[str, tuple[Sequence[str], np.ndarray, Sequence[str], np.ndarray]]
) -> pd.DataFrame:
    """Return the rows of the page.

    Args:
        texts: columns axis, descriptor and text (the prompt).
        sides: by name, responses, style vectors (n, S), the names of the styles, and bias values (n,).
    """
    made = texts[["axis", "descriptor"]].assign(prompt=texts["text"])
    for side, (responses, vectors, styles, b) in sides.items():
        made[f"{side} response"], made[f"{side} style"] = list(responses), list(_strongest(vectors, styles))
        made[f"{side} b"] = b
    return made


def _strongest(vectors: np.ndarray, styles: Sequence[str]) -> Iterator[str]:
    """Yield the most probable style of each response; a dash where there is none."""
    for vector in vectors:
        yield "–" if np.isnan(vector).any() else styles[int(vector.argmax())]
