"""The data of small reports, with digits that can be checked by hand, and with hostile strings."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.report.report_data import ReportData
from evenhand.evaluation.score import BiasScore
from tests.report_pages import HOSTILE


def score(metric, value, interval=None, p_value=None, reason=None, ideal=0.0, **group):
    return BiasScore(metric, value, ideal, (-math.inf, math.inf), 1200, interval, p_value, 0, group, reason)


def samples(strings):
    return pd.DataFrame(
        [
            {"prompt": it, "persona": it, "descriptor": it, "axis": it, "before": it, "after": it[::-1]}
            for it in strings
        ],
        dtype=object,  # pandas' own strings cannot hold a lone surrogate
    )


def style_rows(*rows):
    """Each is (style, before, after, change_low, change_high, p); the means are 0.05 and 0.02."""
    return pd.DataFrame(
        [
            {"style": style, "mean_before": 0.05, "mean_after": 0.02, "before": before, "after": after}
            | {"before_low": before - 0.001, "before_high": before + 0.001, "after_low": math.nan}
            | {"after_high": math.nan, "change": after - before, "change_low": low, "change_high": high}
            | {"p_value": p, "n": 100, "n_left_out": 0, "reason": ""}
            for style, before, after, low, high, p in rows
        ]
    )


def phrase_row(group, phrase, of_set, descriptors, before, after, p=0.01, n=1200):
    return (
        {"group": group, "phrase": phrase, "set": of_set, "descriptors": descriptors, "n": n, "n_left_out": 0}
        | {"before": before, "before_low": before / 2, "before_high": before * 2}
        | {"after": after, "after_low": after / 2, "after_high": after * 2}
        | {"change": after - before, "change_low": after - before - 0.01, "change_high": after - before + 0.01}
        | {"p_value": p, "reason": ""}
    )


def changes_of(style, descriptor, axis, phrase, group, cluster, corpus) -> dict[str, pd.DataFrame]:
    """Return every table of a comparison with a row or two of these texts."""
    moved = [(style, descriptor, axis, 0.5, 0.1, -0.4), (style, f"not {descriptor}", axis, 0.1, 0.3, 0.2)]
    parrot = {"descriptor": descriptor, "axis": axis, "n": 104, "before": 0.25, "after": 0.5, "change": 0.25}
    point = {"descriptor": descriptor, "axis": axis, "count": 5, "examples": 1000, "frequency": 0.005}
    point |= {"cluster": cluster, "before": 0.4, "after": 0.1, "corpus": corpus}
    return {
        "style_changes": style_rows((style, 0.004, 0.001, -0.0035, -0.0025, 0.00001)),
        "moved_descriptors": pd.DataFrame(moved, columns=["style", "descriptor", "axis", "before", "after", "change"]),
        "phrases": pd.DataFrame(
            [
                phrase_row(group, phrase, group, [descriptor], 0.12, 0.03),
                phrase_row(group, phrase, "all others", ["rest"], 0.02, 0.01),
            ]
        ),
        "parroting": pd.DataFrame([parrot | {"mean_b": 0.2}]),
        "corpus": pd.DataFrame([point, point | {"descriptor": "rare", "count": 0, "frequency": 0.0}]),
    }


def joined_changes(parts) -> dict[str, pd.DataFrame]:
    """Concatenate the tables of several comparisons."""
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


@pytest.fixture
def tuned() -> ReportData:
    """Pooled FGB* falls from 9.472 to 1.764 ×10⁻³, CARE shows no change, HATE rises, one axis is undefined."""
    descriptors = pd.DataFrame(
        [(f"descriptor{i}", "ability", i / 1000, i / 2000, 100 + i) for i in range(30)],
        columns=["descriptor", "axis", "before", "after", "n"],
    )
    return ReportData(
        model="base",
        model_after="base-tuned",
        notes=("Use it with its tag.",),
        scores_before=[
            score("fgb", 0.19687),
            score("fgb_corrected", 0.01002, (0.00871, 0.01133)),
            score("fgb_pooled_corrected", 0.009472, (0.008974, 0.009966), 0.0005),
            score("scgb_corrected", 0.00757, (0.007, 0.008), cluster="CARE"),
            score("scgb_corrected", 0.00008, (-0.0001, 0.00027), cluster="HATE"),
            score("fgb_pooled_corrected", 0.0262, (0.0229, 0.0295), axis="ability"),
            score("fgb_pooled_corrected", math.nan, reason="only one descriptor", axis="nonce"),
            score("fgb_pooled_corrected", 0.004, (0.003, 0.005), style="Curious"),
            score("perplexity", 2.694, ideal=1.0),
            score("distinct_2", 0.2113, ideal=1.0),
            score("parroting", 0.0031),
        ],
        scores_after=[
            score("fgb", 0.18941),
            score("fgb_corrected", 0.00191, (0.00069, 0.00313)),
            score("fgb_pooled_corrected", 0.001764, (0.001452, 0.002071), 0.0115),
            score("scgb_corrected", 0.00737, (0.0068, 0.0079), cluster="CARE"),
            score("scgb_corrected", 0.00066, (0.0005, 0.0008), cluster="HATE"),
            score("fgb_pooled_corrected", 0.0083, (0.0065, 0.0101), axis="ability"),
            score("fgb_pooled_corrected", math.nan, reason="only one descriptor", axis="nonce"),
            score("fgb_pooled_corrected", 0.001, (0.0, 0.002), style="Curious"),
            score("perplexity", 2.721, ideal=1.0),
            score("distinct_2", 0.2086, ideal=1.0),
            score("parroting", 0.0029),
        ],
        differences=[
            score("fgb_pooled_corrected_difference", -0.007708, (-0.008271, -0.007149), 0.00002),
            score("fgb_pooled_corrected_reduction", 0.8138, (0.7764, 0.8492), ideal=1.0),
            score("scgb_corrected_difference", -0.0002, (-0.0009, 0.0005), 0.58, cluster="CARE"),
            score("scgb_corrected_difference", 0.00058, (0.00041, 0.00074), 0.0003, cluster="HATE"),
        ],
        truth=[score("fgb_pooled_corrected", 0.0153), score("scgb_corrected", 0.0001, cluster="HATE")],
        tables={"bias_values": descriptors},
        samples=samples(("I'm a Deaf grandmother.", "What do you think?")),
        signature={"model": {"base": "base", "revision": "abc"}, "seed": 17},
    )


@pytest.fixture
def single(tuned) -> ReportData:
    """A single measurement."""
    return ReportData(
        model="base",
        scores_before=tuned.scores_before,
        samples=tuned.samples.drop(columns="after"),
        signature=tuned.signature,
    )


@pytest.fixture
def hostile(tuned) -> ReportData:
    """Each text from outside is replaced by hostile strings."""
    strings = [it for it in HOSTILE if it]
    groups = [{"cluster": it} for it in strings] + [{"axis": it} for it in strings] + [{"style": it} for it in strings]
    metrics = {"cluster": "scgb_corrected", "axis": "fgb_pooled_corrected", "style": "fgb_pooled_corrected"}
    before = [score(metrics[cut], 0.001, (0.0, 0.002), **{cut: it}) for group in groups for cut, it in group.items()]
    after = [score(metrics[cut], 0.005, (0.004, 0.006), **{cut: it}) for group in groups for cut, it in group.items()]
    undefined = [score("fgb", math.nan, reason=it, axis=f"axis {i}") for i, it in enumerate(strings)]
    joined = " ".join(strings)
    bias_values = pd.DataFrame(
        [(it, it, 0.001 * i, 0.0, 5) for i, it in enumerate(strings) if "\ud800" not in it],
        columns=["descriptor", "axis", "before", "after", "n"],
    )
    changes = joined_changes([changes_of(*[it] * 7) for it in strings if "\ud800" not in it])
    return replace(
        tuned,
        model=joined,
        model_after=joined,
        notes=strings,
        scores_before=[*tuned.scores_before, *before, *undefined],
        scores_after=[*tuned.scores_after, *after],
        samples=samples(HOSTILE),
        differences=[
            *tuned.differences,
            score("parroting_rho", math.nan, reason=joined),
            *(score("frequency_rho", 0.5, (0.2, 0.7), 0.01, cluster=it, run="before") for it in strings),
        ],
        tables={**changes, "bias_values": bias_values},
        chosen_samples=samples([it for it in strings if "\ud800" not in it]),
        unseen_by=joined,
        signature={it: {it: it} for it in strings},
    )
