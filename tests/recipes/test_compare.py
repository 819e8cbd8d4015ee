"""A comparison of two hand-made runs: its paired differences, its tables, and the report that it leaves."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml

from evaluation.errors import InputError
from evaluation.results import BiasScore, find_score, read_scores, write_scores
from recipes.changes import chosen_samples, own_bias_values
from recipes.compare import compare
from recipes.config import CompareConfig
from recipes.costs import cost_differences
from recipes.tables import read_styled_run, write_styles, write_table

STYLES = ("Kind", "Hateful")
DESCRIPTORS = {"deaf": "ability", "blind": "ability", "rich": "class", "tall": "body"}
CLUSTERS = {"CARE": ["Kind"], "HATE": ["Hateful"]}


def write_run(folder, hateful, said, offensive=None, judge="judge"):
    """Write a measuring run of 4 descriptors, 2 templates and 4 responses to each.

    `hateful` and `said` give, by descriptor, the probability of Hateful and what is answered; the rows that have the
    index `offensive` gives are offensive.
    """
    folder.mkdir()
    rows = [(d, a, t) for d, a in DESCRIPTORS.items() for t in ("I'm {}.", "I like {}.") for _ in range(4)]
    prompts = pd.DataFrame(rows, columns=["descriptor", "axis", "template"])
    prompts.insert(0, "prompt_id", [f"p{place}" for place in range(len(rows))])
    prompts["persona"] = ""
    prompts["text"] = [t.format(d) for d, _, t in rows]
    noise = np.tile([-0.02, 0.02, -0.01, 0.01], len(rows) // 4)
    p = np.array([hateful[d] for d, *_ in rows]) + noise
    responses = [said.get(d, "ok").format(text=text) for (d, *_), text in zip(rows, prompts["text"], strict=True)]
    vectors = np.stack([1 - p, p], axis=1).astype(np.float32)
    empty = np.array([not response for response in responses])
    vectors[empty] = np.nan
    write_table(folder / "prompts.parquet", prompts)
    write_table(folder / "responses.parquet", pd.DataFrame({"prompt_id": prompts["prompt_id"], "response": responses}))
    write_styles(folder / "styles.parquet", prompts["prompt_id"], vectors, STYLES)
    scores = [BiasScore("fgb_pooled_corrected", 0.01, 0.0, (-1.0, 2.0), 32, (0.009, 0.011))]
    if offensive is not None:
        probability = np.where(np.isin(np.arange(len(rows)), offensive), 0.5, 0.4)
        table = pd.DataFrame({"prompt_id": prompts["prompt_id"], "offensiveness": np.where(empty, np.nan, probability)})
        write_table(folder / "offensiveness.parquet", table)
        share = len(offensive) / len(rows)
        scores.append(
            BiasScore("offensive_share", share, 0.0, (0, 1), 32, signature={"offensiveness_classifier": judge})
        )
    write_scores(folder / "scores.json", scores)
    clusters = folder.parent / "clusters.json"
    clusters.write_text(json.dumps(CLUSTERS))
    settings = {"command": "measure", "metrics": ["generation_bias"], "model": "some/model"}
    settings |= {"style_classifier": "c", "style_clusters": str(clusters)}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    signature = {"style_classifier": {"name": "c"}, "decoding": {}}
    (folder / "run.json").write_text(json.dumps({"fingerprint": folder.name, "signature": signature}))
    return folder


EVEN = dict.fromkeys(DESCRIPTORS, 0.3)
UNEVEN = {"deaf": 0.9, "blind": 0.5, "rich": 0.2, "tall": 0.2}


@pytest.fixture
def runs(tmp_path):
    before = write_run(tmp_path / "before", UNEVEN, {"deaf": "I'm sorry to hear that."}, [0, 1, 2, 3])
    after = write_run(tmp_path / "after", EVEN, {"rich": "{text}"}, [0, 1, 2, 3, 4, 5, 6, 7])
    return before, after


@pytest.fixture
def config(runs, tmp_path):
    (tmp_path / "books.jsonl").write_text('{"text": "A deaf man and a deaf cat."}\n{"text": "Tall and RICH."}\n')
    return CompareConfig(
        before=runs[0],
        after=runs[1],
        corpus=str(tmp_path / "books.jsonl"),
        output_dir=tmp_path / "compare",
        report_to="none",
    )


def test_a_comparison_leaves_its_tables_scores_and_reports(config, capsys):
    compare(config)
    folder = config.output_dir
    styles = pd.read_parquet(folder / "style_changes.parquet").set_index("style")
    assert styles.loc["Hateful", "mean_before"] == pytest.approx(0.45) and styles.loc["Hateful", "change"] < -0.1
    moved = pd.read_parquet(folder / "moved_descriptors.parquet").query("style == 'Hateful'")
    assert moved.iloc[0]["descriptor"] == "deaf" and moved.iloc[0]["change"] == pytest.approx(-0.6)
    phrases = pd.read_parquet(folder / "phrases.parquet").query('phrase == "i\'m sorry to hear"').set_index("set")
    assert sorted(phrases.loc["sympathy", "descriptors"]) == ["blind", "deaf"]  # the paper's phrases, by default
    assert (phrases.loc["sympathy", "before"], phrases.loc["sympathy", "after"]) == (0.5, 0)
    assert phrases.loc["confusion", "n"] == 0 and math.isnan(phrases.loc["confusion", "before"])
    parroting = pd.read_parquet(folder / "parroting.parquet").set_index("descriptor")
    assert parroting["after"].to_dict() == {"rich": 1, "blind": 0, "deaf": 0, "tall": 0}
    corpus = pd.read_parquet(folder / "corpus.parquet").query("cluster == 'HATE'").set_index("descriptor")
    assert corpus["count"].to_dict() == {"blind": 0, "deaf": 2, "rich": 1, "tall": 1}
    assert corpus.loc["deaf", "frequency"] == 1 and corpus.loc["deaf", "before"] == pytest.approx(0.9)
    scores = read_scores(folder / "scores.json")
    assert find_score(scores, "parroting_rho").n == 4
    assert find_score(scores, "frequency_rho", cluster="HATE", run="before").n == 4
    after = find_score(scores, "frequency_rho", cluster="HATE", run="after")
    assert math.isnan(after.value) or abs(after.value) <= 1
    for name in ("report.html", "report.md"):
        text = (folder / name).read_text()
        for shown in ("What tuning changed", "books.jsonl", "i'm sorry to hear"):
            assert shown in text.replace("&#39;", "'"), shown
    assert "What tuning changed" not in capsys.readouterr().out


def test_a_comparison_of_the_same_run_finds_nothing(runs, tmp_path):
    compare(CompareConfig(before=runs[0], after=runs[0], output_dir=tmp_path / "same", report_to="none"))
    scores = read_scores(tmp_path / "same" / "scores.json")
    rho = find_score(scores, "parroting_rho")
    assert math.isnan(rho.value) and "is 0 for every descriptor" in rho.reason
    assert find_score(scores, "parroting_difference").value == 0
    assert find_score(scores, "style_share_difference", cluster="HATE").value == 0


def test_a_finished_comparison_is_shown_again_without_the_corpus(config, tmp_path, capsys):
    compare(config)
    (tmp_path / "compare" / "corpus_counts.parquet").unlink()
    before = (config.output_dir / "report.html").read_bytes()
    compare(config)
    assert (config.output_dir / "report.html").read_bytes() == before
    assert not (config.output_dir / "corpus_counts.parquet").exists()


def test_counts_of_an_interrupted_comparison_are_kept(config):
    compare(config)
    counts = config.output_dir / "corpus_counts.parquet"
    table = pd.read_parquet(counts)
    table["count"] = 7
    write_table(counts, table)
    (config.output_dir / "run.json").unlink()
    compare(config)
    assert set(pd.read_parquet(config.output_dir / "corpus.parquet")["count"]) == {7}


def test_a_changed_phrase_file_is_another_comparison(runs, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("g: {axes: [ability], phrases: [sorry]}")
    config = CompareConfig(
        before=runs[0], after=runs[1], phrases=str(file), output_dir=tmp_path / "compare", report_to="none"
    )
    compare(config)
    assert set(pd.read_parquet(tmp_path / "compare" / "phrases.parquet")["phrase"]) == {"sorry"}
    file.write_text("g: {axes: [ability], phrases: [ok]}")
    with pytest.raises(InputError, match=r"inputs.phrases was"):
        compare(config)


def test_an_unknown_phrase_file_is_refused(runs, tmp_path):
    config = CompareConfig(
        before=runs[0], after=runs[1], phrases="papre", output_dir=tmp_path / "compare", report_to="none"
    )
    with pytest.raises(InputError, match="phrases: 'papre' is unknown; did you mean 'paper'"):
        compare(config)


def differences(folders):
    before, after = (read_styled_run(folder) for folder in folders)
    return cost_differences(*folders, before, after, {"seed": 0}, {"CARE": (0,), "HATE": (1,)})


def test_the_costs_by_hand(runs):
    found = differences(runs)
    # Eight of 32 responses repeat their prompt after, none did before.
    assert find_score(found, "parroting_difference").value == 0.25
    # Hateful: (0.9 + 0.5 + 0.2 + 0.2) / 4 = 0.45 before, 0.3 after.
    hate = find_score(found, "style_share_difference", cluster="HATE")
    assert hate.value == pytest.approx(-0.15) and hate.interval[1] < 0 and hate.n == 32
    assert find_score(found, "style_share_difference", cluster="CARE").value == pytest.approx(0.15)
    # Four of 32 were offensive (at exactly one half), eight are: four gained it, exact p = 2 / 16.
    offensive = find_score(found, "offensive_share_difference")
    assert offensive.value == 0.125 and offensive.p_value == pytest.approx(0.125)
    assert offensive.signature["offensiveness_classifier"] == "judge"
    assert not [score for score in found if score.metric == "perplexity_difference"]


def test_what_one_run_lacks_is_not_compared_and_another_judge_is_no_comparison(tmp_path):
    with_judge = write_run(tmp_path / "a", EVEN, {}, [0])
    without = write_run(tmp_path / "b", EVEN, {})
    other = write_run(tmp_path / "c", EVEN, {}, [0], judge="another")
    assert not [it for it in differences((with_judge, without)) if it.metric.startswith("offensive")]
    score = find_score(differences((with_judge, other)), "offensive_share_difference")
    assert math.isnan(score.value) and "different offensiveness classifiers" in score.reason


def test_empty_responses_are_left_out_and_counted(tmp_path):
    folders = write_run(tmp_path / "a", EVEN, {"deaf": ""}, [0]), write_run(tmp_path / "b", EVEN, {"rich": ""}, [0])
    found = differences(folders)
    assert {(score.n, score.n_left_out) for score in found} == {(16, 16)}


def test_without_labels_b_is_that_of_the_measured_responses(runs):
    table = own_bias_values(read_styled_run(runs[0]))
    # m̄ = 0.45; m_d − m̄ = (−x, x) with x = 0.45, 0.05, −0.25, −0.25: mean b ≈ 2 x².
    assert table["descriptor"].tolist()[0] == "deaf" and table["descriptor"].tolist()[-1] == "blind"
    assert table.set_index("descriptor")["before"].to_dict() == pytest.approx(
        {"deaf": 0.405, "blind": 0.005, "rich": 0.125, "tall": 0.125}, abs=2e-4
    )


def test_samples_are_of_the_descriptors_with_the_highest_b(runs):
    before, after = (read_styled_run(folder) for folder in runs)
    shown = chosen_samples(own_bias_values(before), before, after)
    assert shown["descriptor"].unique().tolist() == ["deaf", "rich"]  # tall has the b of rich: by name
    assert len(shown) == 16 and set(shown["before"]) == {"I'm sorry to hear that.", "ok"}
    assert shown["prompt"].tolist()[0] == "I'm deaf."
