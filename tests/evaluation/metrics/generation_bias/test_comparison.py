"""A comparison of two hand-made runs: its paired differences, its tables and its report."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import plain
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias import GenerationBias
from evenhand.evaluation.metrics.generation_bias.answers import read_answers, style_table
from evenhand.evaluation.metrics.generation_bias.classification import OFFENSIVENESS_CLASSIFIER
from evenhand.evaluation.metrics.generation_bias.compared_runs import (
    check_comparable,
    compared_responses,
    on_common_prompts,
)
from evenhand.evaluation.metrics.generation_bias.comparison import opened_comparison, with_common_levels
from evenhand.evaluation.metrics.generation_bias.early_stop import Stop
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.parts.costs import CostsPart
from evenhand.evaluation.metrics.generation_bias.parts.quality import QualityPart
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings, Settings
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.report.formats import find_format
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import BiasScore, find_score, write_scores
from evenhand.evaluation.statistics.sequential import LookPlan
from evenhand.evaluation.tables import write_table
from tests.family_runs import compare_family
from tests.named_scores import named_score
from tests.parsed_page import assert_inert
from tests.report_pages import assert_leads_to_a_decision

METRIC = GenerationBias()
STYLES = ("Kind", "Hateful")
DESCRIPTORS = {"deaf": "ability", "blind": "ability", "rich": "class", "tall": "body"}
CLUSTERS = {"CARE": ["Kind"], "HATE": ["Hateful"]}


def write_run(folder, hateful, responses, offensive=None, offensiveness_classifier="first", classifier="c"):
    """Write a measuring run of 4 descriptors, 2 templates and 4 responses to each.

    `hateful` and `responses` are the probability of Hateful and the response by descriptor; `offensive` is the
    positions of the offensive responses.
    """
    folder.mkdir()
    rows = [(d, a, t) for d, a in DESCRIPTORS.items() for t in ("I'm {}.", "I like {}.") for _ in range(4)]
    prompts = pd.DataFrame(rows, columns=["descriptor", "axis", "template"])
    prompts.insert(0, "prompt_id", [f"p{row}" for row in range(len(rows))])
    prompts["persona"] = ""
    prompts["text"] = [t.format(d) for d, _, t in rows]
    noise = np.tile([-0.02, 0.02, -0.01, 0.01], len(rows) // 4)
    p = np.array([hateful[d] for d, *_ in rows]) + noise
    texts = [responses.get(d, "ok").format(text=text) for (d, *_), text in zip(rows, prompts["text"], strict=True)]
    vectors = np.stack([1 - p, p], axis=1).astype(np.float32)
    empty = np.array([not text for text in texts])
    vectors[empty] = np.nan
    write_table(folder / "prompts.parquet", prompts)
    responses = pd.DataFrame({"prompt_id": prompts["prompt_id"], "response": texts, "left_out": None})
    write_table(folder / "responses.parquet", responses)
    write_table(folder / "styles.parquet", style_table(prompts["prompt_id"], vectors, STYLES))
    signature = {"style_classifier": {"name": classifier}, "decoding": {}}
    scores = [named_score("fgb_pooled_corrected", 0.01, 0.0, (-1.0, 2.0), 32, (0.009, 0.011), signature=signature)]
    if offensive is not None:
        probability = np.where(np.isin(np.arange(len(rows)), offensive), 0.5, 0.4)
        table = pd.DataFrame({"prompt_id": prompts["prompt_id"], "offensiveness": np.where(empty, np.nan, probability)})
        write_table(folder / "offensiveness.parquet", table)
        share = len(offensive) / len(rows)
        scores.append(
            BiasScore(
                "offensive_share",
                share,
                0.0,
                (0, 1),
                32,
                signature={OFFENSIVENESS_CLASSIFIER: offensiveness_classifier},
            )
        )
    write_scores(folder / "scores.json", scores)
    clusters = folder.parent / "clusters.json"
    clusters.write_text(json.dumps(CLUSTERS))
    settings = Settings(style_clusters=str(clusters))
    return FamilyRun(folder, FamilyConfig(model=ModelSettings(name="some/model"), settings=settings))


EVEN = dict.fromkeys(DESCRIPTORS, 0.3)
UNEVEN = {"deaf": 0.9, "blind": 0.5, "rich": 0.2, "tall": 0.2}


@pytest.fixture
def runs(tmp_path):
    before = write_run(tmp_path / "before", UNEVEN, {"deaf": "I'm sorry to hear that."}, [0, 1, 2, 3])
    after = write_run(tmp_path / "after", EVEN, {"rich": "{text}"}, [0, 1, 2, 3, 4, 5, 6, 7])
    return before, after


# Mean b of UNEVEN's descriptors: m̄ = 0.45, m_d − m̄ = (−x, x) with x = 0.45, 0.05, −0.25, −0.25, b ≈ 2 x².
BIAS_VALUES = pd.DataFrame(
    [
        ("deaf", "ability", 0.405, 8),
        ("rich", "class", 0.125, 8),
        ("tall", "body", 0.125, 8),
        ("blind", "ability", 0.005, 8),
    ],
    columns=["descriptor", "axis", "before", "n"],
)


def compare(folder, before, after, config=None, bias_values=BIAS_VALUES):
    """Run a comparison in a folder, as the command does, and return it."""
    folder.mkdir(exist_ok=True)
    config = config or ComparisonSettings()
    store = Store(folder, "a fingerprint", Tracker())
    if bias_values is not None:
        store.write("bias_values", bias_values)
    write_scores(folder / "scores.json", METRIC.compare(store, before, after, config))
    return FamilyRun(folder, config)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "books.jsonl").write_text('{"text": "A deaf man and a deaf cat."}\n{"text": "Tall and RICH."}\n')
    return ComparisonSettings(corpus=CorpusSettings(paths=[str(tmp_path / "books.jsonl")]))


def test_tables_scores_and_report_of_a_comparison(runs, config, tmp_path):
    compared = compare(tmp_path / "compare", *runs, config)
    assert all({"before", "after"} <= score.signature.keys() for score in compared.scores)
    phrases = compared.table("phrases").query('phrase == "i\'m sorry to hear"').set_index("set")
    # The paper's phrases, by default; sympathy's set is blind and deaf.
    assert (phrases.loc["sympathy", "n"], phrases.loc["sympathy", "before"], phrases.loc["sympathy", "after"]) == (
        16,
        0.5,
        0,
    )
    assert phrases.loc["confusion", "n"] == 0 and math.isnan(phrases.loc["confusion", "before"])
    parroting = compared.table("parroting").set_index("descriptor")
    assert parroting["after"].to_dict() == {"rich": 1, "blind": 0, "deaf": 0, "tall": 0}
    assert parroting["mean_b"].to_dict() == {"deaf": 0.405, "rich": 0.125, "tall": 0.125, "blind": 0.005}
    cells = compared.table("parroting_by_cell")  # only those with a repeated prompt; all four responses of each changed
    assert cells[["template", "descriptor", "n", "change"]].values.tolist() == [
        ["I like {}.", "rich", 4, 1],
        ["I'm {}.", "rich", 4, 1],
    ]
    assert compared.table("parroting_by_template")["after"].tolist() == [0.25, 0.25]
    corpus = compared.table("corpus").query("cluster == 'HATE'").set_index("descriptor")
    assert corpus["count"].to_dict() == {"blind": 0, "deaf": 2, "rich": 1, "tall": 1}
    assert corpus.loc["deaf", "frequency"] == 1 and corpus.loc["deaf", "before"] == pytest.approx(0.9)
    assert find_score(compared.scores, "parroting_rho").n == 4
    assert find_score(compared.scores, "frequency_rho", cluster="HATE", run="before").n == 4
    after = find_score(compared.scores, "frequency_rho", cluster="HATE", run="after")
    assert math.isnan(after.value) or abs(after.value) <= 1
    report = METRIC.comparison_page(*runs, compared)
    assert_leads_to_a_decision(report)
    assert plain(report.facts) == plain(METRIC.comparison_facts(*runs, compared))
    names = []
    for section in report.all_sections():
        names.append(section.title)
        for table in section.tables:
            names += [table.caption, *(row.label for row in table.rows)]
    assert any("i'm sorry to hear" in name for name in names)  # a phrase that changed
    for metric in ("frequency_rho", "parroting"):
        assert any(find_format(metric).label.lower() in name.lower() for name in names), (metric, names)
    assert set(STYLES) <= set(names)


def test_hostile_texts_stay_text(tmp_path):
    """Nothing in the page of a run, or of a comparison, can run or be fetched."""
    hostile = dict.fromkeys(DESCRIPTORS, '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e\x1b[31m')
    runs = [write_run(tmp_path / side, UNEVEN, hostile) for side in ("before", "after")]
    model = ModelSettings(name=hostile["deaf"])
    runs = [FamilyRun(run.folder, replace(run.config, model=model)) for run in runs]
    bias_values = BIAS_VALUES.assign(axis="<b>")
    compared = compare(tmp_path / "compare", *runs, bias_values=bias_values)
    for report in (METRIC.comparison_page(*runs, compared), METRIC.page(runs[0])):
        assert_leads_to_a_decision(report)
        text = page_html(report)
        assert_inert(text)
        assert "&lt;script&gt;alert" in text and "\u202e" not in text


def test_a_run_has_no_difference_from_itself_and_no_bias_values_leave_tables_out(runs, tmp_path):
    scores = compare(tmp_path / "same", runs[0], runs[0]).scores
    rho = find_score(scores, "parroting_rho")
    assert math.isnan(rho.value) and "is 0 for every descriptor" in rho.reason
    assert find_score(scores, "parroting", kind="difference").value == 0
    assert find_score(scores, "style_share", kind="difference", cluster="HATE").value == 0
    compared = compare(tmp_path / "compare", *runs, bias_values=None)
    assert not compared.has("phrases")
    assert compared.table("parroting")["mean_b"].isna().all()
    assert not [score for score in compared.scores if score.metric == "parroting_rho"]


def test_a_comparison_accounts_for_the_look_at_which_a_run_stopped(runs, tmp_path):
    plan = LookPlan((6, 8))
    stop = Stop(Question("decided"), plan.rounds, look=0, decided=2, asked=32, planned=48)
    (runs[0].folder / "stopped.json").write_text(json.dumps(asdict(stop)))
    comparison, _ = opened_comparison(Store(tmp_path, "a fingerprint", Tracker()), *runs, ComparisonSettings())
    assert comparison.old.level == comparison.new.level == plan.level(0)
    warnings = METRIC.comparison_page(*runs, compare(tmp_path / "compare", *runs)).warnings
    assert any("32 of 48" in warning for warning in warnings)


def test_counts_of_an_interrupted_comparison_are_kept(runs, config, tmp_path):
    folder = tmp_path / "compare"
    compared = compare(folder, *runs, config)
    counts = compared.table("corpus_counts").assign(count=7)
    Store(folder, "a fingerprint", Tracker()).write("corpus_counts", counts)
    (folder / "corpus.parquet").unlink()
    (tmp_path / "books.jsonl").unlink()  # it is not read again
    assert set(compare(folder, *runs, config).table("corpus")["count"]) == {7}


def test_inputs_of_a_comparison_are_checked_and_fingerprinted(runs, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("g: {axes: [ability], phrases: [sorry]}")
    config = ComparisonSettings(phrases=str(file))
    first = METRIC.comparison_inputs(config)
    assert set(compare(tmp_path / "compare", *runs, config).table("phrases")["phrase"]) == {"sorry"}
    file.write_text("g: {axes: [ability], phrases: [ok]}")
    assert METRIC.comparison_inputs(config) != first and first.keys() == {"phrases"}
    with pytest.raises(InputError, match="phrases: 'papre' .*'paper'"):
        METRIC.comparison_inputs(ComparisonSettings(phrases="papre"))
    with pytest.raises(InputError, match="corpus: "):
        METRIC.comparison_inputs(ComparisonSettings(corpus=CorpusSettings(paths=[str(tmp_path / "absent.jsonl")])))
    assert METRIC.comparison_inputs(ComparisonSettings()) == {}
    other = write_run(tmp_path / "other", EVEN, {}, classifier="another")
    with pytest.raises(InputError, match="after: style_classifier has name another in .*other, and name c in "):
        compare(tmp_path / "compare", runs[0], other)
    prompts = other.table("prompts").assign(prompt_id=lambda rows: "other" + rows["prompt_id"])
    for name in ("prompts", "responses", "styles"):
        write_table(other.folder / f"{name}.parquet", other.table(name).assign(prompt_id=prompts["prompt_id"]))
    with pytest.raises(InputError, match="^after: "):
        compare(tmp_path / "compare", runs[0], other)


def test_the_first_classifiers_are_compared_in_whatever_order_scores_are(runs):
    """A run of people never tuned on has scores of them first; one without has those of the second classifier first."""

    def with_scores(run, first, order):
        kinds = {
            "overall": ({}, first),
            "untuned": ({"tuned": "yes"}, first),
            "second": ({"classifier": "second"}, "s"),
        }
        scores = []
        for kind in order:
            group, name = kinds[kind]
            signature = {"style_classifier": {"name": name}}
            scores.append(BiasScore("fgb", 0.1, 0.0, (0.0, 1.0), n=8, group=group, signature=signature))
        return replace(run, common_scores=scores)

    rows = tuple(map(compared_responses, runs))
    before = with_scores(runs[0], "c", ["untuned", "overall", "second"])
    check_comparable(before, with_scores(runs[1], "c", ["second", "overall"]), rows)
    with pytest.raises(InputError, match="style_classifier has name d in .*, and name c in "):
        check_comparable(before, with_scores(runs[1], "d", ["second", "overall"]), rows)


def test_runs_are_compared_on_their_common_prompts(runs, tmp_path):
    """Prompts that only one run has would make a change of their mix look like a change of the model."""
    other = write_run(tmp_path / "other", EVEN, {})
    for name in ("prompts", "responses", "styles"):
        rows = other.table(name)
        renamed = rows["prompt_id"].where(np.arange(len(rows)) % 2 == 0, "other" + rows["prompt_id"])
        write_table(other.folder / f"{name}.parquet", rows.assign(prompt_id=renamed))
    before, after, is_common = on_common_prompts(runs[0], other)
    assert is_common.sum() == 16 and len(is_common) == 48
    assert compared_responses(before).table["prompt_id"].equals(compared_responses(after).table["prompt_id"])
    scores = compare(tmp_path / "compare", runs[0], other).scores
    assert find_score(scores, "common_prompts").value == pytest.approx(16 / 48)


def test_numbers_before_and_after_are_of_the_common_prompts(tmp_path):
    """Without the deaf, whom one run has, the means of Hateful are 0.5, 0.2 and 0.2: the variance is 0.03."""
    before = write_run(tmp_path / "before", UNEVEN, {}, [])
    after = write_run(tmp_path / "after", UNEVEN, {}, [])
    for name in ("prompts", "responses", "styles", "offensiveness"):
        rows = after.table(name)
        write_table(after.folder / f"{name}.parquet", rows[8:])
    changes = compare(tmp_path / "compare", before, after)
    levels = [with_common_levels(run, changes.scores, side) for side, run in (("before", before), ("after", after))]
    for level in levels:
        headline = find_headline(level.scores)
        assert headline.value == pytest.approx(0.06, abs=1e-6)  # of two styles
        assert headline.n == 24 and headline.signature["style_classifier"] == {"name": "c"}
        assert find_score(level.scores, "style_share", cluster="HATE").value == pytest.approx(0.3)
        assert find_score(level.scores, "offensive_share").n == 24
    page = METRIC.comparison_page(before, after, changes)
    assert any("no prompt about them is in both runs: 1 kind of people (deaf)" in each for each in page.warnings)
    assert page.subtitle == "○\u00a0some/model (before) → ●\u00a0some/model (after)"
    moved = f"{100 * math.sqrt(0.03):.1f}"
    assert page.headline_value == ""
    (style,) = (row for row in page.first_table.rows if row.label == "style, over all people")
    assert [cell.text for cell in style.cells] == [f"{moved} of 100", f"{moved} of 100", "no change is shown"]
    assert any("24 of 32" in warning for warning in page.warnings)
    assert not any("HATE" in warning for warning in page.warnings)
    assert with_common_levels(before, [], "before") is before  # all prompts are common, or an earlier version compared


def costs(runs):
    before, after = runs
    comparison = Comparison(
        store=None,
        before=before,
        after=after,
        old=read_answers(before.folder),
        new=read_answers(after.folder),
        clusters={"CARE": (0,), "HATE": (1,)},
        corpus=CorpusSettings(),
        phrases=None,
        base=None,
        without_base="no model",
        signature={"seed": 0},
    )
    return CostsPart().compare(comparison) + QualityPart().compare(comparison)


def test_the_costs_by_hand(runs):
    compared = costs(runs)
    # Eight of 32 responses repeat their prompt after, none did before.
    assert find_score(compared, "parroting", kind="difference").value == 0.25
    # Hateful: (0.9 + 0.5 + 0.2 + 0.2) / 4 = 0.45 before, 0.3 after.
    hate = find_score(compared, "style_share", kind="difference", cluster="HATE")
    assert hate.value == pytest.approx(-0.15) and hate.interval[1] < 0 and hate.n == 32
    assert find_score(compared, "style_share", kind="difference", cluster="CARE").value == pytest.approx(0.15)
    # Four of 32 were offensive (at exactly one half), eight are: four gained it, exact p = 2 / 16.
    offensive = find_score(compared, "offensive_share", kind="difference")
    assert offensive.value == 0.125 and offensive.p_value == pytest.approx(0.125)
    assert offensive.signature["offensiveness_classifier"] == "first"
    assert not [score for score in compared if score.name == "perplexity_difference"]


def test_offensiveness_needs_one_classifier_and_empty_responses_are_left_out(tmp_path):
    measured = write_run(tmp_path / "a", EVEN, {}, [0])
    unmeasured = write_run(tmp_path / "b", EVEN, {})
    other = write_run(tmp_path / "c", EVEN, {}, [0], offensiveness_classifier="another")
    assert not [it for it in costs((measured, unmeasured)) if it.metric.startswith("offensive")]
    score = find_score(costs((measured, other)), "offensive_share", kind="difference")
    assert math.isnan(score.value) and "different offensiveness classifiers" in score.reason


def test_offensiveness_is_compared_if_its_classifier_has_moved_to_another_folder(tmp_path):
    runs = []
    for name, offensive in (("before", [0, 1]), ("after", [0])):
        classifier = {"name": f"{name}/folder", "revision": "1f", "label": "offensive", "threshold": 0.5}
        runs.append(write_run(tmp_path / name, EVEN, {}, offensive, offensiveness_classifier=classifier))
    assert find_score(costs(runs), "offensive_share", kind="difference").value == pytest.approx(-1 / 32)


def test_empty_responses_are_left_out_and_counted(tmp_path):
    both = write_run(tmp_path / "a", EVEN, {"deaf": ""}, [0]), write_run(tmp_path / "b", EVEN, {"rich": ""}, [0])
    compared = costs(both)
    # An empty answer has no style and repeats nothing, but it is empty, and it has 0 words.
    of_all = [score for score in compared if score.metric in ("empty_share", "mean_length")]
    assert {(score.n, score.n_left_out) for score in of_all} == {(32, 0)}
    assert {(score.n, score.n_left_out) for score in compared if score not in of_all and score.n} == {(16, 16)}


def test_each_level_beside_a_change_is_of_the_same_answers(tmp_path):
    """The runs lack the answers to other people: of every score, after = before + change."""
    answers = {"deaf": "That is nice.", "blind": "{text}", "tall": "ok ok"}
    before = write_run(tmp_path / "a", UNEVEN, {**answers, "rich": ""}, [0])
    after = write_run(tmp_path / "b", EVEN, {**answers, "blind": ""}, [0, 1])
    changes = compare_family(tmp_path / "changes", "generation_bias", before, after)
    old, new = (with_common_levels(run, changes.scores, side) for run, side in ((before, "before"), (after, "after")))
    found = set()
    for change in changes.scores:
        sides = [find_score(run.scores, change.metric, change.form, **change.group) for run in (old, new)]
        if change.kind != "difference" or None in sides or math.isnan(change.value):
            continue
        assert sides[0].value + change.value == pytest.approx(sides[1].value, abs=1e-6), change.name
        found.add(change.metric)
    assert {"fgb", "scgb", "style_share", "parroting", "mean_length", "empty_share", "offensive_share"} <= found
    lengths = find_score(changes.scores, "mean_length", kind="kept")
    ratio = find_score(new.scores, "mean_length").value / find_score(old.scores, "mean_length").value
    assert lengths.value == pytest.approx(ratio)
