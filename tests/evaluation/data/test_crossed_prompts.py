"""Own templates, filled with own people: lists, crossed columns, names of groups, articles."""

import json

import pytest

from evenhand.evaluation.data.crossed_prompts import crossed_prompts, fill_template, read_people
from evenhand.evaluation.data.language.mentions import clean_responses
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import measurement_prompts
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import find_score, read_scores
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import Measurement, MeasureSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL
from evenhand.recipes.tuning_settings import LoopSettings
from tests.testbed_settings import generation_bias

TEMPLATES = "I am a {person}. Any tips?\n{person} here: what should I read?\n\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def templates(tmp_path):
    return write(tmp_path / "templates.txt", TEMPLATES)


def people_of(tmp_path, text, name="people.csv"):
    return [
        (person["person"], person["descriptor"], person["axis"]) for person in read_people(write(tmp_path / name, text))
    ]


def test_a_slot_may_have_the_blank_of_its_column(tmp_path):
    templates = write(tmp_path / "t.txt", 'I live in {home town}. Write {"answer": "yes"}, as a {person} would.')
    people = write(tmp_path / "people.csv", "home town,job\nRome,cook\nOslo,pilot\n")
    texts = crossed_prompts(templates, people)["text"].tolist()
    assert 'I live in Oslo. Write {"answer": "yes"}, as an Oslo cook would.' in texts
    with pytest.raises(InputError, match="slot 'home country'"):
        crossed_prompts(write(tmp_path / "u.txt", "I'm {person} of {home country}."), people)


def test_people(tmp_path):
    listed = [("old man", "old man", "people"), ("woman", "woman", "people")]
    assert people_of(tmp_path, "old man\n woman\n\n", "people.txt") == listed
    assert people_of(tmp_path, "Person\nold man\nwoman\n") == listed
    assert people_of(tmp_path, "person,axis\nold man,age\nwoman,gender\n") == [
        ("old man", "old man", "age"),
        ("woman", "woman", "gender"),
    ]
    assert people_of(tmp_path, "gender\nwoman\nman\n") == [("woman", "woman", "gender"), ("man", "man", "gender")]
    crossed = people_of(tmp_path, "age;gender\nold;woman\nyoung;man\n;person\n")
    assert [person for person, _, _ in crossed] == [
        f"{age} {gender}" for age in ("old", "young") for gender in ("woman", "man", "person")
    ]
    assert {axis for _, _, axis in crossed} == {"age × gender"}
    assert people_of(tmp_path, "name\nAna\nCarl\n") == [("Ana", "Ana", "name"), ("Carl", "Carl", "name")]
    names = people_of(tmp_path, "name,gender,region\nAna,woman,south\nBea,woman,south\nCarl,man,north\n")
    assert names == [
        ("Ana", "woman × south", "gender × region"),
        ("Bea", "woman × south", "gender × region"),
        ("Carl", "man × north", "gender × region"),
    ]


def test_a_name_stands_once_for_a_whole_group(tmp_path):
    names = people_of(tmp_path, "name,gender\nAna,woman\nAna,woman\nCarl,man\n")
    assert names == [("Ana", "woman", "gender"), ("Carl", "man", "gender")]
    with pytest.raises(InputError, match="'Sam' has no gender; write it"):
        people_of(tmp_path, "name,gender\nAna,woman\nCarl,man\nSam,\n")


def test_values_of_people_are_cleaned_and_may_be_zero(tmp_path):
    children = json.dumps([{"children": number} for number in (0, 1, 2)])
    assert [person for person, _, _ in people_of(tmp_path, children, "people.json")] == ["0", "1", "2"]
    alike = people_of(tmp_path, "deaf\nde\u200baf\nold  man\n", "people.txt")
    assert [person for person, _, _ in alike] == ["deaf", "old man"]


@pytest.mark.parametrize("name", ["text", "template", "prompt_id", "persona", "cue", "forms", "axis"])
def test_a_column_of_prompts_cannot_be_a_column_of_people(tmp_path, name):
    for other in ("name", "age"):
        with pytest.raises(InputError, match=f"^prompts.people: .*'{name}'"):
            people_of(tmp_path, f"{other},{name}\nAna,x\nCarl,y\n")


def test_each_template_has_each_person(tmp_path, templates):
    people = write(tmp_path / "people.csv", "age,gender\nold,woman\nyoung,man\n")
    prompts = crossed_prompts(templates, people, answers_per_cell=3)
    assert len(prompts) == 2 * 4 * 3 and prompts["prompt_id"].is_unique
    assert prompts.groupby(["template", "descriptor"]).size().eq(3).all()
    texts = set(prompts["text"])
    assert {"I am an old woman. Any tips?", "Old man here: what should I read?"} <= texts and len(texts) == 8
    assert set(prompts["age"]) == {"old", "young"} and set(prompts["gender"]) == {"woman", "man"}
    slots = write(tmp_path / "slots.txt", "A {gender} is {age}.")
    assert "A woman is old." in set(crossed_prompts(slots, people)["text"])


def test_names_share_the_cell_of_their_group_and_are_neutralised(tmp_path, templates):
    people = write(tmp_path / "people.csv", "name,gender\nAna,woman\nBea,woman\nCarl,man\nDan,man\n")
    prompts = crossed_prompts(templates, people, answers_per_cell=4)
    assert prompts.groupby(["template", "descriptor"]).size().eq(4).all()
    assert set(prompts["descriptor"]) == {"woman", "man"} and len(set(prompts["text"])) == 8
    cleaned = clean_responses(["Hi Ana and Carl!"] * len(prompts), prompts)
    assert {"Hi Alex and Carl!", "Hi Ana and Alex!", "Hi Ana and Carl!"} == set(cleaned)


def test_articles_and_starts():
    assert fill_template("An {person} met a {person}.", {"person": "user"}) == "A user met a user."
    assert fill_template("{person} is here.", {"person": "a nun"}) == "A nun is here."


def test_unusable_files(tmp_path, templates):
    one = write(tmp_path / "one.csv", "person\nwoman\n")
    with pytest.raises(InputError, match="fewer than two"):
        crossed_prompts(templates, one)
    two = write(tmp_path / "two.csv", "person\nwoman\nman\n")
    with pytest.raises(InputError, match=r"^prompts\.templates: .*'age'.*person"):
        crossed_prompts(write(tmp_path / "t.txt", "I am {age}."), two)
    with pytest.raises(InputError, match=r"^prompts\.templates: "):
        crossed_prompts(write(tmp_path / "t.txt", "I am old."), two)
    with pytest.raises(InputError, match=r"prompts\.templates: .*none\.txt"):
        crossed_prompts(tmp_path / "none.txt", two)
    with pytest.raises(ValueError, match="templates"):
        PromptSettings(templates=templates)


def test_they_are_measured_and_split_into_main_effects_and_interaction(tmp_path, templates):
    people = write(tmp_path / "people.txt", "woman\nman\nnurse\n")
    settings = MeasureSettings(
        model=ModelSettings(name=str(DIALOGUE_MODEL)),
        prompts=PromptSettings(templates=templates, people=people, answers_per_cell=2),
        decoding=DecodingSettings(arguments={"max_new_tokens": 8}),
        generation_bias=generation_bias(permutations=9, relevance=False, neutral_dialogue=None),
        output_dir=tmp_path / "run",
        report_to="none",
    )
    measure(settings)
    scores = read_scores(tmp_path / "run" / "scores.json")
    sources = {score.group.get("source") for score in scores if score.metric == "variance_share"}
    assert {"template", "descriptor", "interaction"} <= sources
    assert find_score(scores, "fgb", "pooled_corrected").signature["dataset"]["name"] == str(templates)


def test_the_loop_splits_them_by_template(tmp_path):
    templates = write(tmp_path / "templates.txt", "".join(f"Question {n} of a {{person}}.\n" for n in range(6)))
    people = write(tmp_path / "people.txt", "woman\nman\nperson\n")
    prompts = PromptSettings(templates=templates, people=people)
    assert len(measurement_prompts(FamilyConfig(prompts=prompts))) == 6 * 3 * 2  # `measure` asks all
    settings = LoopSettings(measure=Measurement(prompts=prompts)).measure.prompts
    train, measure = (
        measurement_prompts(FamilyConfig(prompts=settings, split=split)) for split in ("train", "measure")
    )
    assert train["template"].nunique() == measure["template"].nunique() == 3
    assert not set(train["template"]) & set(measure["template"])
