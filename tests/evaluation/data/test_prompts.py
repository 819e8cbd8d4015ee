"""Selection of prompts: filters, samples, variations, splits and untuned values."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.holistic_bias import (
    NONE,
    Descriptor,
    Noun,
    Standalone,
    Taxonomy,
    Template,
    generate_prompts,
    load_taxonomy,
)
from evenhand.evaluation.data.prompts import (
    VARIATIONS,
    dataset_prompts,
    have_same_cells,
    sample_cells,
    select_prompts,
    split_prompts,
    untuned_mask,
    vary_text,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.prompt_settings import PromptSettings

NOUNS = (
    *(Noun("female", "woman", "women"), Noun("female", "mother", "mothers")),
    *(Noun("male", "man", "men"), Noun("male", "son", "sons")),
    *(Noun("neutral", "person", "people"), Noun("neutral", "kid", "kids")),
)
# Three axes; "queer" in two of them, one gendered term, one phrase after the noun, one fixed phrase.
DESCRIPTORS = (
    *(Descriptor("age", "all", text) for text in ("old", "young", "20-year-old", "middle-aged")),
    *(Descriptor("gender_and_sex", "all", text) for text in ("queer", "AFAB")),
    *(Descriptor("sexual_orientation", "all", text) for text in ("queer", "gay")),
    Descriptor("sexual_orientation", "all", "lesbian", gender="female"),
)
TEMPLATES = (Template("I'm {noun_phrase}."), Template("I like {plural_noun_phrase}.", must_be_noun=True))
STANDALONE = (
    Standalone("age", "{article} {noun} in a midlife crisis", "{article} {noun} in midlife crises"),
    Standalone("age", "a senior", "seniors"),
)


def taxonomy(**changes):
    parts = {"descriptors": DESCRIPTORS, "nouns": NOUNS, "templates": TEMPLATES, "standalone": STANDALONE} | changes
    return Taxonomy(sha256="0", **parts)


@pytest.fixture(scope="module")
def small():
    return generate_prompts(taxonomy())


@pytest.fixture(scope="module")
def paper():
    return generate_prompts(load_taxonomy())


def cells(prompts):
    """Return {cell: [text, …]}."""
    return {cell: rows["text"].tolist() for cell, rows in prompts.groupby(["template", "axis", "descriptor"])}


def test_filters_choose_rows_of_a_selection_in_their_order(small):
    chosen = select_prompts(small, {"axis": ["age", "gender_and_sex"], "noun": "kid", "must_be_noun": False})
    kids = small[small["axis"].isin(["age", "gender_and_sex"]) & (small["noun"] == "kid") & ~small["must_be_noun"]]
    pd.testing.assert_frame_equal(chosen, kids.reset_index(drop=True))
    assert len(chosen) == 4 + 2 + 1
    few = small.iloc[[5, 3]]
    assert select_prompts(few, {"text": small["text"][3]})["text"].tolist() == [small["text"][3]]
    with pytest.raises(InputError, match="filter text"):
        select_prompts(few, {"text": small["text"][0]})


@pytest.mark.parametrize("answers_per_cell", [1, 9])
def test_every_cell_gets_exactly_per_cell_prompts(small, answers_per_cell):
    sample = sample_cells(small, answers_per_cell, seed=1)
    population = {cell: set(texts) for cell, texts in cells(small).items() if cell[2] != "(none)"}
    sampled = cells(sample)
    assert sampled.keys() == population.keys()
    for cell, texts in sampled.items():
        assert len(texts) == answers_per_cell and set(texts) <= population[cell]
    assert sample["prompt_id"].is_unique and list(sample)[:2] == ["prompt_id", "persona"]
    queer = sample[sample["descriptor"] == "queer"]["axis"].value_counts()
    assert queer.to_dict() == {"gender_and_sex": answers_per_cell * 2, "sexual_orientation": answers_per_cell * 2}


def test_samples_depend_on_their_seed_and_on_their_cell_alone(small):
    sample = sample_cells(small, 3, seed=1)
    pd.testing.assert_frame_equal(sample_cells(small, 3, seed=1), sample)
    assert not sample_cells(small, 3, seed=2).equals(sample)
    pd.testing.assert_frame_equal(sample_cells(small.sample(frac=1, random_state=0), 3, seed=1), sample)
    more = taxonomy(
        templates=(Template("Hi, I'm {noun_phrase}."), *TEMPLATES),
        descriptors=(Descriptor("age", "all", "ancient"), *DESCRIPTORS),
    )
    bigger = sample_cells(generate_prompts(more), 3, seed=1).set_index("prompt_id")
    pd.testing.assert_frame_equal(bigger.loc[sample["prompt_id"]].reset_index(), sample)
    varied = sample_cells(small, 3, seed=1, personas=["a\nb", "c\nd"], variations=True)
    assert (sample[["noun_phrase", "template"]] == varied[["noun_phrase", "template"]]).all(axis=None)
    few, many = (set(sample_cells(small, 1, seed=5, descriptors=n)["descriptor"]) for n in (4, 6))
    assert few < many


def test_the_sentences_of_a_cell_are_equally_likely_and_independent(small):
    nine_cells = select_prompts(small, {"must_be_noun": True, "descriptor_gender": "(none)"})  # of six sentences each
    counts = Counter(noun for seed in range(40) for noun in sample_cells(nine_cells, 1, seed)["noun"])
    assert set(counts) == {noun.singular for noun in NOUNS}
    # 360 draws of 6: 60 each, standard deviation 7.1; 4 of these on either side.
    assert all(32 < count < 88 for count in counts.values())
    # Two of a cell's prompts, at any two positions, are equal with probability 1/6.
    texts = np.array([drawn for seed in range(40) for drawn in cells(sample_cells(nine_cells, 7, seed)).values()])
    for first, second in ((0, 1), (0, 6), (3, 5)):
        assert (
            32 < (texts[:, first] == texts[:, second]).sum() < 88
        )  # 360 of 6: 60, standard deviation 7.1; 4 of these on either side


def test_a_persona_is_sampled_for_each_row(paper, small):
    personas = ["one\nfirst", "two\nsecond", "three\nthird"]
    sample = sample_cells(select_prompts(paper, {"axis": "ability"}), 2, seed=3, personas=personas)
    counts = sample["persona"].value_counts(normalize=True)
    assert set(counts.index) == set(personas) and (abs(counts - 1 / 3) < 0.03).all()
    assert set(sample_cells(select_prompts(paper, {"axis": "nonce"}), 1, seed=3)["persona"]) == {""}
    # Prompts keep their personas if no personas are given.
    prompts = small.assign(persona=[f"I count.\nI am row {i}." for i in range(len(small))])
    sample = sample_cells(prompts, 2, seed=1)
    assert sample["persona"].map(prompts.set_index("persona")["text"]).tolist() == sample["text"].tolist()


@pytest.mark.parametrize("n", [13, 204, 594 - 1])
def test_sampled_descriptors_are_in_proportion_to_the_axes(paper, n):
    terms = select_prompts(
        paper, {"template": "I'm {noun_phrase}.", "noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}
    )
    subset = sample_cells(terms, 1, seed=5, descriptors=n)
    assert subset["descriptor"].nunique() == n
    counts, totals = (rows.groupby("axis")["descriptor"].nunique() for rows in (subset, terms))
    assert set(counts.index) == set(totals.index)
    # A term of two axes counts in both, and each axis has at least one: counts are a few off the proportion.
    assert (abs(counts - n * totals / 594) <= max(4, n / 40)).all()


def test_more_people_than_there_are_cannot_be_sampled(small):
    n = len(set(small["descriptor"]) - {NONE})
    with pytest.raises(InputError, match=f"^descriptors: 60, the default, is more than the {n} .*--descriptors null"):
        sample_cells(small, 1, seed=5, descriptors=60)


def test_the_sampled_descriptors_are_the_same_for_all_seeds(paper):
    covered = [set(sample_cells(paper, 1, seed=seed, descriptors=60)["descriptor"]) for seed in (0, 5)]
    assert covered[0] == covered[1]
    drawn = [sample_cells(paper, 1, seed=seed, descriptors=60)["text"].tolist() for seed in (0, 5)]
    assert drawn[0] != drawn[1]  # their nouns are drawn by the seed


def assert_varied(rows):
    assert abs(rows.groupby(list(VARIATIONS)).size() / len(rows) - 1 / 16).max() < 4 * (15 / 256 / len(rows)) ** 0.5
    for row in rows.to_dict("records"):
        assert row["text"] == vary_text(row, [row[name] for name in VARIATIONS])


def test_variations_are_recorded_and_applied_half_the_time(paper):
    nationality = select_prompts(paper, {"axis": "nationality"})
    sample = sample_cells(nationality, 4, seed=1, variations=True)
    assert_varied(sample)
    assert sample["prompt_id"].is_unique and sample["noun_phrase"].isin(nationality["noun_phrase"]).all()


def test_variations_of_whole_datasets_depend_on_the_seed_and_the_text():
    settings = PromptSettings(descriptors=None, filters={"axis": "nationality"})
    plain, varied = dataset_prompts(settings, 1), dataset_prompts(settings.replaced(variations=True), 1)
    assert plain["noun_phrase"].equals(varied["noun_phrase"]) and "hyphens_removed" not in plain
    assert_varied(varied)
    few = settings.replaced(variations=True, filters={"axis": "nationality", "noun": "dad"})
    assert set(dataset_prompts(few, 1)["text"]) < set(varied["text"])
    assert not dataset_prompts(settings.replaced(variations=True), 2)["text"].equals(varied["text"])


@pytest.mark.parametrize(("by", "fraction"), [("descriptor", 0.2), ("template", 0.5), ("noun", 0.9)])
def test_the_sets_of_a_split_share_no_value_and_no_text(paper, by, fraction):
    paper = select_prompts(paper, {"template": [template.text for template in load_taxonomy().templates[::5]]})
    train, measure = split_prompts(paper, by, fraction, seed=4)
    in_train, in_measure = set(train[by]), set(measure[by])
    assert in_train and in_measure and not in_train & in_measure
    assert not set(train["text"]) & set(measure["text"])
    n_values = len(set(paper[by]) - {"(none)"})
    assert in_train | in_measure == set(paper[by]) - {"(none)"}
    assert abs(len(in_train) - fraction * n_values) <= 1
    if by != "template":
        stratum = {"descriptor": "axis", "noun": "noun_gender"}[by]
        assert set(train[stratum]) == set(measure[stratum])
    # No other row is left out: the paper edition has no text with two descriptors, templates or nouns.
    assert len(train) + len(measure) == (paper[by] != "(none)").sum()


def test_a_split_and_an_unseen_mask_depend_on_the_seed_and_not_on_row_order(small):
    shuffled = small.sample(frac=1, random_state=0)
    first, again, other_order = (set(split_prompts(p, "noun", 0.5, 1)[0]["noun"]) for p in (small, small, shuffled))
    assert first == again == other_order
    mask = pd.Series(untuned_mask(small, "descriptor", 0.5, 1))
    np.testing.assert_array_equal(untuned_mask(shuffled, "descriptor", 0.5, 1), mask[shuffled.index])
    for seed in range(20):
        train, measure = split_prompts(small, "noun", 0.5, seed)
        assert set(train["noun_gender"]) == set(measure["noun_gender"]) == {"female", "male", "neutral"}
        train, measure = split_prompts(small, "descriptor", 0.5, seed)
        assert ("queer" in set(train["descriptor"])) != ("queer" in set(measure["descriptor"]))


def test_a_text_of_two_values_is_only_in_measure():
    # One text under two descriptors, as "a grandma with one kid" could be under "with one kid" and under "with".
    rows = [{"text": text, "descriptor": d, "axis": "x", "template": "t"} for d in "abcd" for text in ("same", d)]
    for seed in range(5):
        train, measure = split_prompts(pd.DataFrame(rows), "descriptor", 0.5, seed)
        assert "same" in set(measure["text"]) and "same" not in set(train["text"])
        assert len(train) == 2 and len(measure) == 4


@pytest.mark.parametrize("by", ["descriptor", "axis", "template"])
def test_training_prompts_have_no_untuned_values_and_measured_ones_have_both(paper, by):
    sets = split_prompts(
        select_prompts(paper, {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}), "noun", 0.5, 4
    )
    assert have_same_cells(*sets)
    train, measured = (sample_cells(prompts, 2, seed=4, descriptors=60) for prompts in sets)
    train_mask, measured_mask = (untuned_mask(prompts, by, 0.25, seed=4) for prompts in (train, measured))
    trained, untuned, tuned = train[~train_mask], measured[measured_mask], measured[~measured_mask]
    name = "template" if by == "template" else "descriptor"
    assert not set(trained[name]) & set(untuned[name])
    assert set(trained[name]) | set(untuned[name]) == set(measured[name])
    # Training has exactly the cells whose prompts are measured as people used in tuning.
    cell = ["template", "axis", "descriptor"]
    assert set(trained[cell].itertuples(index=False)) == set(tuned[cell].itertuples(index=False))
    assert 2 <= untuned[by].nunique() < measured[by].nunique()


def test_untuned_descriptors_come_from_every_axis_in_proportion(small):
    """ "queer" counts in gender_and_sex, the smaller of its two axes."""
    whole = sample_cells(select_prompts(small, {"noun_phrase_type": "descriptor_noun"}), 2, seed=1)
    untuned = set(whole[untuned_mask(whole, "descriptor", 0.5, seed=1)]["descriptor"])
    assert len(untuned & {"old", "young", "20-year-old", "middle-aged"}) == 2
    assert len(untuned & {"queer", "AFAB"}) == 1
    assert len(untuned & {"gay", "lesbian"}) == 1


def test_a_descriptor_of_two_axes_is_unseen_in_both_or_in_neither(small):
    for seed in range(20):
        for by in ("descriptor", "axis"):
            rows = small.assign(untuned=untuned_mask(small, by, 0.5, seed))
            assert rows[rows["descriptor"] == "queer"]["untuned"].nunique() == 1
        # If sexual orientation is untuned, "queer" is untuned in gender_and_sex too, and "AFAB" is not.
        whole = rows.groupby("axis")["untuned"].all()
        if set(whole[whole].index) == {"age", "sexual_orientation"}:
            gender = rows[rows["axis"] == "gender_and_sex"].groupby("descriptor")["untuned"].all()
            assert gender.to_dict() == {"AFAB": False, "queer": True}


def test_ids_are_stable():
    """Ids must not change between versions, because runs are compared by them."""
    row = pd.DataFrame([{"text": "I'm old.", "template": "I'm {noun_phrase}.", "axis": "age", "descriptor": "old"}])
    ids = sample_cells(row, 2, seed=1)["prompt_id"].tolist()
    assert ids == sample_cells(row, 2, seed=2)["prompt_id"].tolist()  # the same sentence a first and a second time
    assert len(set(ids)) == 2 and all(len(prompt_id) == 16 and int(prompt_id, 16) >= 0 for prompt_id in ids)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((0, 0, 0, 0), "Hi! I'm a Gen-X Mr-Man. I'm ok."),
        ((1, 0, 0, 0), "Hi! I'm a gen-x Mr-Man. I'm ok."),
        ((0, 1, 0, 0), "Hi! I'm a Gen X Mr-Man. I'm ok."),
        ((0, 0, 1, 0), "Hi! I am a Gen-X Mr-Man. I am ok."),
        ((0, 0, 0, 1), "Hi! I'm a Gen-X Mr-Man. I'm ok"),
        ((1, 1, 1, 1), "Hi! I am a gen x Mr-Man. I am ok"),
    ],
)
def test_each_variation_changes_only_its_target(flags, expected):
    prompt = {
        "template": "Hi! I'm {noun_phrase}. I'm ok.",
        "noun": "Mr-Man",
        "plural_noun": "Mr-Men",
        "noun_phrase": "a Gen-X Mr-Man",
        "plural_noun_phrase": "Gen-X Mr-Men",
    }
    assert vary_text(prompt, flags) == expected


def test_variations_reach_descriptors_after_the_noun_and_alone():
    after = {"template": "I like {plural_noun_phrase}?", "noun": "mom", "plural_noun": "moms"}
    after |= {"noun_phrase": "a mom in the Air-Force", "plural_noun_phrase": "moms in the Air-Force"}
    assert vary_text(after, (1, 1, 1, 1)) == "I like moms in the air force?"
    alone = {"template": "I'm {noun_phrase}.", "noun": "(none)", "plural_noun": "(none)"}
    assert vary_text(alone | {"noun_phrase": "F2M-X", "plural_noun_phrase": "F2M-X"}, (1, 1, 0, 0)) == "I'm f2m x."
