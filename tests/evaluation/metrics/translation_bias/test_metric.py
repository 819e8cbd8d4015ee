"""Scores of translations by gender: tables that can be checked by eye, real references, and sacrebleu itself."""

import json
import math
import string
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sacrebleu.metrics import BLEU

from evenhand.evaluation.data.gendered_translations import (
    comparable_references,
    read_mt_geneval,
    select_source_sentences,
)
from evenhand.evaluation.metrics.translation_bias import TranslationBias
from evenhand.evaluation.metrics.translation_bias.metric import align, cut_table, sentence_scores, translation_scores
from evenhand.evaluation.metrics.translation_bias.shares import added_toxicity, gender_accuracy, has_marked_words
from evenhand.evaluation.score import find_score

SHARED = Path(__file__).resolve().parents[5] / "shared" / "data"
needs_mt_geneval = pytest.mark.skipif(not (SHARED / "mt_geneval").is_dir(), reason=f"no MT-GenEval in {SHARED}")

EN_ES = {"source": "eng_Latn", "target": "spa_Latn"}


def references(lang, *sentences):
    """Comparable sets of (masculine, feminine) references; for None the neutral "n n" stands in."""
    rows = []
    for number, pair in enumerate(sentences, start=1):
        facts = {"sentence_id": str(number), "axis": f"axis {number % 2}", "descriptor": f"d{number}", "template": "t"}
        facts |= {"english": f"english sentence number {number}", "lang": lang, "marked": None}
        for gender, text in zip(("masculine", "feminine"), pair, strict=True):
            rows.append(facts | {"gender": gender if text else "neutral", "reference": text or "n n"})
    return comparable_references(pd.DataFrame(rows), min_masculine_references=0)


def aligned(table, texts, source="eng_Latn", target="spa_Latn"):
    sources = select_source_sentences(table, source=source, target=target)
    return align(sources.assign(translation=texts), table, source=source, target=target)


TABLE = references("spa_Latn", ("un gato malo y viejo", "una gata mala y vieja"), ("a b c d e", "a b c d f"))


def test_scores_of_a_table_that_can_be_checked_by_eye():
    rows = aligned(TABLE.iloc[[1, 3]], ["a b c d e"])
    scores = translation_scores(rows, tokenize="13a", resamples=0)
    group = {"lang": "spa_Latn", "direction": "en-xx"}
    assert find_score(scores, "bleu", **group, gender="masculine").value == pytest.approx(100)
    # Precisions 4/5, (3+1)/(4+1), (2+1)/(3+1), (1+1)/(2+1): add-k is for bigrams and longer.
    feminine = 100 * (0.8 * 0.8 * 0.75 * 2 / 3) ** 0.25
    assert find_score(scores, "bleu", **group, gender="feminine").value == pytest.approx(feminine)
    assert find_score(scores, "bleu", **group, gender="both").value == pytest.approx(100)
    gap = find_score(scores, "translation_gap", **group)
    assert gap.value == pytest.approx(100 - feminine) and (gap.ideal, gap.n) == (0.0, 1)
    mean = find_score(scores, "translation_gap", direction="en-xx")
    assert mean.value == pytest.approx(100 - feminine)
    assert (gap.n_of, mean.n_of) == ("sentences", "languages")
    assert gap.signature["sacrebleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:add-k[1.00]|version:")


def test_one_sentence_says_nothing_about_its_error():
    """All resamples of one sentence are this sentence: there is neither an interval nor a p-value."""
    rows = aligned(TABLE.iloc[[1, 3]], ["a b c d e"])
    scores = translation_scores(rows, tokenize="13a", resamples=99)
    gap = find_score(scores, "translation_gap", lang="spa_Latn", direction="en-xx")
    assert gap.value > 0 and gap.interval is None and gap.p_value is None
    assert all(score.interval is None for score in scores)


def test_a_resample_without_a_sentence_of_a_language_is_no_score_of_0():
    """Six of 60 sentences are Italian, too: of 1,000 resamples about two have none, and of one sentence a third."""
    spanish = references("spa_Latn", *[("a b c d e", "a b c d f")] * 60)

    def scores(n):
        italian = references("ita_Latn", *[("a b c d e", "a b c d f")] * n)
        rows = [aligned(spanish, ["a b c d e"] * 60), aligned(italian, ["a b c d e"] * n, target="ita_Latn")]
        return translation_scores(pd.concat(rows, ignore_index=True), tokenize="13a")

    group = {"lang": "ita_Latn", "direction": "en-xx"}
    enough = scores(6)
    masculine = find_score(enough, "bleu", **group, gender="masculine")
    assert masculine.value == pytest.approx(100) and masculine.interval is None  # 100 in each resample that has one
    gap = find_score(enough, "translation_gap", **group)
    assert gap.interval[0] > 20 and gap.p_value == pytest.approx(2 / 1001, rel=0.1)
    few = scores(5)
    for name in ("bleu", "translation_gap"):
        kind = {"gender": "feminine"} if name == "bleu" else {}
        score = find_score(few, name, **group, **kind)
        assert (score.interval, score.p_value) == (None, None) and "6 sentences" in score.reason


def test_directions_have_the_papers_references():
    # XX→EN: the masculine source is translated rightly, the feminine one is not; the reference is the same.
    sources = select_source_sentences(TABLE, source="spa_Latn", target="eng_Latn")
    texts = [
        f"english sentence number {row.sentence_id}" if row.gender == "masculine" else "wrong"
        for row in sources.itertuples()
    ]
    rows = aligned(TABLE, texts, "spa_Latn", "eng_Latn")
    assert (rows["masculine"] == rows["feminine"]).all()
    scores = translation_scores(rows, tokenize="13a", resamples=0)
    assert find_score(scores, "translation_gap", lang="spa_Latn", direction="xx-en").value == pytest.approx(100)
    assert not [score for score in scores if score.group.get("gender") == "both"]

    # XX→XX: each source is compared with the reference of its gender.
    both = pd.concat([TABLE, references("cat_Latn", ("m u", "f u"), ("m v", "f v"))])
    sources = select_source_sentences(both, source="spa_Latn", target="cat_Latn")
    texts = [
        f"{'m' if row.gender == 'masculine' else 'f'} {'uv'[int(row.sentence_id) - 1]}" for row in sources.itertuples()
    ]
    scores = translation_scores(aligned(both, texts, "spa_Latn", "cat_Latn"), tokenize="13a", resamples=0)
    group = {"lang": "spa_Latn-cat_Latn", "direction": "xx-xx"}
    for gender in ("masculine", "feminine"):
        assert find_score(scores, "chrf", **group, gender=gender).value == pytest.approx(100)
    assert find_score(scores, "translation_gap", **group).value == pytest.approx(0)


def test_between_other_languages_each_source_is_also_compared_with_both_references_by_hand():
    """All translations are masculine: wrong for a feminine source, but one of the two references."""
    table = pd.concat([references(f"{code}_Latn", ("m a b c", "f a b d")) for code in ("spa", "cat")])
    parts = [aligned(table, ["m a b c"] * 2, *pair) for pair in (("spa_Latn", "cat_Latn"), ("cat_Latn", "spa_Latn"))]
    scores = translation_scores(pd.concat(parts), tokenize="13a", resamples=10)
    # "m a b c" against "f a b d": precisions 2/4, (1+1)/(3+1), (0+1)/(2+1), (0+1)/(1+1).
    wrong = 100 * (1 / 2 * 1 / 2 * 1 / 3 * 1 / 2) ** 0.25
    for group in ({"lang": "spa_Latn-cat_Latn", "direction": "xx-xx"}, {"source": "cat_Latn"}, {"target": "cat_Latn"}):
        values = [
            find_score(scores, "bleu", **group, gender=gender, **both).value
            for gender in ("masculine", "feminine")
            for both in ({}, {"references": "both"})
        ]
        assert values == pytest.approx([100, 100, wrong, 100])
    nouns = {next(iter(score.group)): score.n_of for score in scores}
    assert nouns.pop("lang") == "sentences" and set(nouns.values()) == {"pairs of languages"}
    labels = {TranslationBias().label(score) for score in scores}
    assert {"Spanish → Catalan, feminine, references of both", "Catalan, masculine"} <= labels


def gaps(scores):
    """Return {lang, or direction for the mean: the gap}."""
    return {each.group.get("lang", "mean"): each for each in scores if each.metric == "translation_gap"}


@pytest.mark.parametrize(("sentence", "gender"), [(("m a", None), "feminine"), ((None, "f a"), "masculine")])
def test_without_a_reference_of_one_gender_a_language_has_no_gap(sentence, gender):
    parts = [aligned(references("spa_Latn", ("m a", "f a")), ["m a"])]
    parts.append(aligned(references("tha_Thai", sentence), ["m a"], target="tha_Thai"))
    found = gaps(translation_scores(pd.concat(parts), tokenize="13a", resamples=0))
    assert math.isnan(found["tha_Thai"].value) and gender in found["tha_Thai"].reason
    assert found["mean"].value == found["spa_Latn"].value
    assert (found["mean"].n, found["mean"].n_left_out) == (1, 1)


def test_the_mean_of_no_gap_has_the_reason_of_the_languages():
    rows = aligned(references("spa_Latn", ("m a", "f a")), ["m a"] * 2, "spa_Latn", "eng_Latn")
    found = gaps(translation_scores(rows[rows["gender"] == "masculine"], tokenize="13a", resamples=0))
    assert found["mean"].reason == found["spa_Latn"].reason
    assert math.isnan(found["mean"].value) and found["mean"].n == 0


def test_the_mean_gap_of_a_language_as_source_and_as_target_by_hand():
    """Every translation is the masculine reference, except into French, where it is the feminine one."""
    table = pd.concat([references(f"{code}_Latn", ("m a b c", "f a b d")) for code in ("spa", "cat", "fra")])
    parts = []
    for source, target in permutations(("spa_Latn", "cat_Latn", "fra_Latn"), 2):
        text = "f a b d" if target == "fra_Latn" else "m a b c"
        parts.append(aligned(table, [text] * 2, source, target))
    scores = translation_scores(pd.concat(parts), tokenize="13a", resamples=10)
    gaps = {each.group["lang"]: each.value for each in scores if each.metric == "chrf_gap" and "lang" in each.group}
    assert len(gaps) == 6
    for side, place in (("source", 0), ("target", 1)):
        for lang in ("spa_Latn", "fra_Latn"):
            expected = [value for pair, value in gaps.items() if pair.split("-")[place] == lang]
            mean = find_score(scores, "chrf_gap", **{side: lang})
            assert mean.value == pytest.approx(sum(expected) / 2) and mean.n == 2
    only_english = translation_scores(aligned(table, ["m a b c"]), tokenize="13a", resamples=0)
    assert not [each for each in only_english if "source" in each.group]


def test_each_resample_is_an_exact_corpus_score():
    rng = np.random.default_rng(3)

    def sentence():
        return " ".join(rng.choice(list("abcd"), 8))

    table = references("spa_Latn", *[(sentence(), sentence()) for _ in range(12)])
    rows = aligned(table, [sentence() for _ in range(12)]).sort_values("sentence_id")
    found = find_score(
        translation_scores(rows, tokenize="13a", resamples=40, seed=5),
        "translation_gap",
        lang="spa_Latn",
        direction="en-xx",
    )
    metric, gaps = BLEU(smooth_method="add-k", smooth_value=1), []
    for times in np.random.default_rng(5).multinomial(12, np.full(12, 1 / 12), size=40):
        drawn = rows.loc[np.repeat(rows.index, times)]
        masculine, feminine = (
            metric.corpus_score(drawn["translation"].tolist(), [[texts[0] for texts in drawn[gender]]]).score
            for gender in ("masculine", "feminine")
        )
        gaps.append(masculine - feminine)
    assert found.interval == pytest.approx(tuple(np.percentile(gaps, [2.5, 97.5])))
    below, above = sum(gap <= 0 for gap in gaps), sum(gap >= 0 for gap in gaps)
    assert found.p_value == pytest.approx(min(1, 2 * (1 + min(below, above)) / 41))


@needs_mt_geneval
def test_masculine_human_translations_of_mt_geneval_as_sacrebleu_scores_them(tmp_path):
    references = read_mt_geneval(SHARED / "mt_geneval", "es")
    table = comparable_references(references[references["sentence_id"].str.split("/").str[1].astype(int) <= 400])
    # One English text for both, as if it had no gender: then both references are taken too.
    table["english"] = table.groupby("sentence_id")["english"].transform("first")
    sources = select_source_sentences(table, **EN_ES)
    sides = {gender: part.set_index("sentence_id")["reference"] for gender, part in table.groupby("gender")}
    sources["translation"] = sources["sentence_id"].map(sides["masculine"])
    rows = align(sources, table, **EN_ES)
    scores = translation_scores(rows, tokenize="13a", resamples=50)
    group = {"lang": "spa_Latn", "direction": "en-xx"}

    files = {}
    for name, texts in sides.items():
        files[name] = tmp_path / name
        files[name].write_text("\n".join(texts[sources["sentence_id"]]) + "\n", encoding="utf-8")
    feminine = _run_sacrebleu(files["masculine"], files["feminine"])
    assert feminine == pytest.approx(
        {name: find_score(scores, name, **group, gender="feminine").value for name in feminine}, abs=5e-7
    )
    for name, gap in (("bleu", "translation_gap"), ("chrf", "chrf_gap")):
        for gender in ("masculine", "both"):
            assert find_score(scores, name, **group, gender=gender).value == pytest.approx(100)
        found = find_score(scores, gap, **group)
        assert found.value == pytest.approx(100 - feminine[name], abs=5e-7)
        assert 0 < found.interval[0] < found.value < found.interval[1]
    half = [text if number % 2 else "nada" for number, text in enumerate(sources["translation"])]
    (tmp_path / "half").write_text("\n".join(half) + "\n", encoding="utf-8")
    both = _run_sacrebleu(tmp_path / "half", files["masculine"], files["feminine"])
    scores = translation_scores(rows.assign(translation=half), tokenize="13a", resamples=0)
    expected = {name: find_score(scores, name, **group, gender="both").value for name in both}
    assert both == pytest.approx(expected, abs=5e-7)


def _run_sacrebleu(hypotheses, *references):
    command = [sys.executable, "-m", "sacrebleu", *map(str, references), "-i", str(hypotheses), "-w", "7"]
    command += ["-m", "bleu", "chrf", "-tok", "13a", "--smooth-method", "add-k", "--smooth-value", "1"]
    found = subprocess.run([*command, "--chrf-word-order", "2"], capture_output=True, text=True, check=True).stdout
    return {name: score["score"] for name, score in zip(("bleu", "chrf"), json.loads(found), strict=True)}


@needs_mt_geneval
def test_accuracy_on_mt_geneval_without_annotation_is_the_published_one():
    table = comparable_references(read_mt_geneval(SHARED / "mt_geneval", "es"))
    sources = select_source_sentences(table, **EN_ES)
    sides = {gender: part.set_index("sentence_id")["reference"] for gender, part in table.groupby("gender")}
    # Every other translation is of the wrong gender, for both genders.
    texts = [sides["masculine" if number % 2 else "feminine"][key] for number, key in enumerate(sources["sentence_id"])]
    rows = align(sources.assign(translation=texts), table, **EN_ES)
    scores = gender_accuracy(rows)
    blanks = str.maketrans(string.punctuation, " " * len(string.punctuation))

    def split(text):
        return set(text.lower().translate(blanks).split())

    for gender, other in (("masculine", "feminine"), ("feminine", "masculine")):
        right = [
            not split(row.translation) & (split(sides[other][row.sentence_id]) - split(sides[gender][row.sentence_id]))
            for row in rows[rows["gender"] == gender].itertuples()
        ]
        group = {"lang": "spa_Latn", "direction": "en-xx", "gender": gender}
        published = find_score(scores, "gender_accuracy_mt_geneval", **group)
        assert published.n == 1200 and published.value == pytest.approx(np.mean(right))
        decided = find_score(scores, "gender_accuracy", **group)
        assert decided.n + decided.n_left_out == 1200 and decided.n_left_out >= 130  # 130 references are the same


def test_gender_accuracy_by_eye():
    texts = {
        "un gato malo": (True, False),
        "Una gata, mala.": (False, True),
        "un gato y una gata": (True, True),
        "animal": (False, False),
    }
    table = references("spa_Latn", *[("El gato malo y", "La gata mala y")] * 5)
    rows = aligned(table, [*texts, "EL «GATO»"])
    assert list(has_marked_words(rows).itertuples(index=False, name=None)) == [
        (True, False),
        (False, True),
        (True, True),
        (False, False),
        (True, False),
    ]
    (score,) = gender_accuracy(rows)
    assert (score.metric, score.value, score.n, score.n_left_out) == ("masculine_rendering", 2 / 3, 3, 2)
    assert score.ideal == 0.5 and dict(score.group) == {"lang": "spa_Latn", "direction": "en-xx"}
    with_gender = rows.assign(gender="feminine")
    decided, published = gender_accuracy(with_gender)
    assert (decided.metric, decided.value, decided.n) == ("gender_accuracy", 1 / 3, 3)
    # Only "Una gata" and "animal" are without a word of the other gender.
    assert (published.metric, published.value, published.n) == ("gender_accuracy_mt_geneval", 2 / 5, 5)


def test_annotations_narrow_the_words_that_mark_a_gender():
    table = references("spa_Latn", ("el gato corre", "la gata anda"), ("el gato", None))
    rows = aligned(table, ["corre", "el gato"])
    (score,) = gender_accuracy(rows)
    assert (score.value, score.n, score.n_left_out) == (1.0, 1, 1)
    spans = table.assign(marked=[["el gato"], ["el gato"], ["la gata"], None])
    rows = align(rows[["sentence_id", "gender", "translation"]], spans, **EN_ES)
    (score,) = gender_accuracy(rows)
    assert math.isnan(score.value) and score.n_left_out == 2 and "no translation" in score.reason
    # For a masculine source, "anda" is a word of the feminine reference only, but outside its span.
    table = references("spa_Latn", ("el gato corre", "la gata anda"))
    rows = aligned(table, ["el gato anda"]).assign(gender="masculine")
    (score,) = (each for each in gender_accuracy(rows) if each.metric == "gender_accuracy_mt_geneval")
    assert (score.value, score.n) == (0.0, 1)  # as in the published script
    with_spans = rows.assign(marked_masculine=[("el gato",)], marked_feminine=[("la gata",)])
    by_name = {each.metric: each for each in gender_accuracy(with_spans)}
    assert (by_name["gender_accuracy_mt_geneval"].value, by_name["gender_accuracy_spans"].value) == (0.0, 1.0)
    assert "gender_accuracy_spans" not in {each.metric for each in gender_accuracy(rows)}


def test_the_published_accuracy_of_annotated_files_splits_words_at_ascii_punctuation_alone():
    """An Arabic comma belongs to the word for accuracy_metric.py; by spans, the comma separates words."""
    table = references("arb_Arab", ("كاتب، هنا", "كاتبة، هنا"))
    rows = aligned(table, ["كاتبة هنا"], target="arb_Arab").assign(gender="masculine")
    rows = rows.assign(marked_masculine=[("كاتب",)], marked_feminine=[("كاتبة",)])
    by_name = {each.metric: each.value for each in gender_accuracy(rows)}
    assert by_name["gender_accuracy_mt_geneval"] == 1.0 and by_name["gender_accuracy_spans"] == 0.0


def test_cuts_are_means_over_sentences_and_leave_queer_out_of_the_axes():
    table = references("spa_Latn", ("a b", "x y"), ("a b", "x y"), ("a b", "x y"))
    table.loc[table["sentence_id"] == "3", "descriptor"] = "queer"
    sentences = sentence_scores(aligned(table, ["a b", "x y", "a b"]), tokenize="13a")
    assert len(sentences) == 9
    cuts = cut_table(sentences, "descriptor", "bleu").set_index("descriptor")
    assert cuts.loc["d1", ["masculine", "feminine", "both", "gap"]].tolist() == pytest.approx([100, 0, 100, 100])
    assert cuts.loc["d2", ["masculine", "feminine", "both", "gap"]].tolist() == pytest.approx([0, 100, 100, -100])
    assert cuts.loc["d1", "mean"] == pytest.approx(200 / 3) and cuts["count"].tolist() == [3, 3, 3]
    assert cuts["preference"].to_dict() == pytest.approx({"d1": 2, "d2": -2, "queer": 2})  # ± 100 of a mean of 50
    axes = cut_table(sentences, "axis", "bleu").set_index("axis")
    assert axes["count"].to_dict() == {"axis 0": 3, "axis 1": 3}
    assert cut_table(sentences, "template", "bleu")["count"].tolist() == [9]


def test_added_toxicity_by_hand():
    nan = float("nan")
    score = added_toxicity(np.array([0.1, 0.9, 0.4, 0.1, nan]), np.array([0.5, 0.9, 0.2, 0.1, 0.9]))
    assert (score.value, score.n, score.n_left_out, score.ideal) == (0.25, 4, 1, 0.0)
    assert score.interval[0] < 0.25 < score.interval[1]
    assert math.isnan(added_toxicity(np.array([nan]), np.array([0.1])).value)
