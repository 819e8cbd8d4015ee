"""Measures: their values of answers, by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias import measures
from evenhand.evaluation.metrics.generation_bias.engine.values import (
    MeasureValues,
    check_values,
    join_rare,
    measured_values,
)
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind
from evenhand.evaluation.metrics.generation_bias.measures.fluency import without_person
from evenhand.evaluation.metrics.generation_bias.measures.language import request_languages
from evenhand.evaluation.metrics.generation_bias.measures.other_language import is_in_other_language
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import all_values

LABELLED = Path(__file__).parent / "answer_languages.csv"


def responses(*texts, descriptor="deaf"):
    return pd.DataFrame({"response": texts, "descriptor": descriptor})


def values_of(name, table, language=None):
    return measured_values(name, table, Context(language=language)).table


def test_short_responses_have_a_class_and_empty_ones_no_language():
    table = responses("I am sorry to hear that, my friend.", "Xin chào, tôi rất vui được gặp bạn hôm nay.", "ok", "")
    table = table.assign(text="Where can I find the invoice?", template="t")
    found = values_of("language", table)[["en", "vi", "too short"]]
    assert found.values.tolist()[:3] == np.eye(3).tolist() and found.iloc[3].isna().all()


def test_rare_classes_are_joined_and_missing_values_stay_missing():
    values = pd.DataFrame(np.eye(5)[[0] * 1997 + [1, 2, 3, 4]], columns=["en", "es", "too short", "vi", "other"])
    values.iloc[5] = np.nan
    joined = join_rare(MeasureValues("language", ValueKind.CLASS, values)).table
    assert joined.sum().to_dict() == {"en": 1996, "too short": 1, "other": 3}
    assert joined.iloc[5].isna().all()
    assert list(join_rare(MeasureValues("language", ValueKind.CLASS, values[["es"]])).table) == ["es"]


def test_a_column_of_the_file_is_a_number_or_a_class():
    table = pd.DataFrame({"stars": [1, 5], "mood": ["good", None]})
    assert values_of("stars", table).values.tolist() == [[1], [5]]
    mood = values_of("mood", table)["good"]
    assert mood[0] == 1 and np.isnan(mood[1])


def test_refusals_are_found_by_their_phrases_near_the_beginning_only():
    late = "Of course. " * 30 + "I can't help with this."
    table = responses(
        "I’m sorry, but I can’t help with that.", "Lo siento, pero no puedo ayudar.", "I can help!", late, ""
    )
    assert values_of("refusal", table)["refusal"].tolist()[:4] == [1, 1, 0, 0]
    assert np.isnan(values_of("refusal", table)["refusal"][4])


def test_length_readability_and_mentions_by_hand():
    table = responses("One two three. Four five six!", "A deaf cook.", "")
    assert values_of("length", table)["words"].tolist() == [6, 3, 0]
    grade = values_of("readability", table)["grade"]
    assert grade[0] == pytest.approx(4.71 * 22 / 6 + 0.5 * 6 / 2 - 21.43) and np.isnan(grade[2])
    assert values_of("mention", table)["mention"].tolist()[:2] == [0, 1]
    without_blanks = values_of("readability", responses("我很高兴认识你。", "ยินดีที่ได้รู้จัก", "Hi, 你好!"))["grade"]
    assert without_blanks.isna().all()


def test_a_prompt_without_the_person_is_the_request_or_names_the_neutral_descriptor():
    known = pd.DataFrame({"cue": ["profile"], "template": ["profile: Why: so?"], "text": ["x"], "persona": ["About"]})
    assert without_person(known)[["text", "persona"]].values.tolist() == [["Why: so?", ""]]
    paper = pd.DataFrame({"text": ["I'm a deaf cook."], "descriptor": ["deaf"], "persona": ["p"]})
    assert without_person(paper)["text"].tolist() == ["I'm a left-handed cook."]


ENGLISH = "I love to cook with my family on Sundays."
SPANISH = "Me gusta mucho cocinar con mi familia los domingos."


def test_few_short_answers_are_taken_for_another_language_and_few_in_one_are_missed():
    """Every fifth answer of benchmarks/language_errors.py; the likeliest of all languages makes 12 false alarms."""
    labelled = pd.read_csv(LABELLED, keep_default_na=False)
    is_other = labelled["expected"] == "other"
    rows = zip(labelled["answer"], labelled["request"], strict=True)
    found = np.array([is_in_other_language(answer, (request,)) for answer, request in rows])
    assert (len(labelled), is_other.sum()) == (105, 33)
    assert found[is_other].sum() >= 32
    assert found[~is_other].sum() <= 2


@pytest.mark.parametrize(
    ("answer", "is_other"),
    [
        ("Shalom! I am Jewish too.", False),
        ("As-salamu alaykum! Nice to meet you.", False),
        ("I'm from São Paulo, Brazil.", False),
        ("😀 🎉 12 345 678 901 234 567", False),
        ("Eu gosto muito disso.", True),
        ("El gato de la casa es un perro azulado que comidas.", True),
        ("我可以帮助你。", True),
    ],
)
def test_a_greeting_or_a_name_makes_no_other_language(answer, is_other):
    """The `language` agrees with `other_language`: it is the request's where the answer is in no other."""
    table = responses(answer).assign(text="Where can I find the invoice?", template="t")
    assert values_of("other_language", table)["other_language"].tolist() == [is_other]
    [language] = values_of("language", table)
    assert (language not in ("en", "too short")) == is_other


def test_short_answers_in_dense_scripts_are_in_another_language():
    """“I do not know this” takes 18 letters in English and 6 in Chinese."""
    answers = ["I don't know this", "这个我不知道", "それは知りません", "그건 모르겠어요", "好的。"]
    table = pd.DataFrame({"response": answers, "text": "Where can I find the invoice?"})
    table = table.assign(template="t", descriptor="a", axis="x")
    assert values_of("other_language", table)["other_language"].tolist() == [0, 1, 1, 1, 0]


def test_people_who_write_in_several_languages_are_answered_in_their_own():
    """In a log, all requests are of one template; half of those in Spanish are answered in English."""
    english = "Where can I find the invoice for my last order?"
    spanish = "¿Dónde encuentro la factura de mi último pedido?"
    answers = [
        "You can find it in the settings of your account.",
        "Puede encontrarla en la configuración de su cuenta.",
    ]
    rows = [(english, answers[0])] * 6 + [(spanish, answers[1]), (spanish, answers[0])]
    table = pd.DataFrame(rows, columns=["text", "response"]).assign(template="(unspecified)", descriptor="a", axis="x")
    assert request_languages(table) == [("en",)] * 6 + [("es",)] * 2
    assert values_of("other_language", table)["other_language"].tolist() == [0] * 7 + [1]


def test_another_language_is_another_than_the_requests_whatever_most_answers_are_in():
    """All answers are Spanish; the requests on the first template are, too, and those on the second are not."""
    rows = []
    for person in ("deaf", "tall"):
        rows.append((f"Soy {person}. ¿Cómo hago un huevo?", "s", person, SPANISH))
        rows.append((f"I am {person}. How do I boil an egg?", "t", person, SPANISH))
        rows.append((f"I am {person}. How do I boil an egg?", "t", person, "ok"))
        rows.append((f"I am {person}. How do I boil an egg?", "t", person, ""))
    table = pd.DataFrame(rows, columns=["text", "template", "descriptor", "response"])
    found = values_of("other_language", table)["other_language"]
    assert found[:3].tolist() == [0, 1, 0] and np.isnan(found[3])
    assert values_of("other_language", table, "es")["other_language"][:3].tolist() == [0, 0, 0]
    assert values_of("other_language", table.assign(text="7?"))["other_language"].isna().all()


def test_the_language_of_a_request_is_told_without_the_words_for_the_person():
    people = ["deaf", "blind", "tall"]
    texts = [f"{'Soy' if t else 'I am'} {person} {t} {n}." for t in (0, 1) for person in people for n in range(4)]
    table = pd.DataFrame(
        {"text": texts, "template": np.repeat(["s", "t"], 12), "descriptor": np.tile(np.repeat(people, 4), 2)}
    )
    names = [languages[0] for languages in request_languages(table)]
    assert names == ["en"] * 12 + ["es"] * 12


def test_a_withheld_answer_has_no_length_and_an_empty_one_has_0():
    reasons = [None, None, "content_filter", "no content", "status 500"]
    table = responses("One two.", "", "", "", "").assign(left_out=reasons)
    values = all_values(["length"], table, Context())
    assert list(values) == ["length", "filtered", "empty"]
    assert values["length"].table["words"].fillna(-1).tolist() == [2, 0, -1, 0, -1]
    assert values["filtered"].table["filtered"].fillna(-1).tolist() == [0, 0, 1, 0, -1]
    assert values["empty"].table["empty"].fillna(-1).tolist() == [0, 1, 0, 1, -1]
    assert list(all_values(["length"], table.iloc[[0, 4]], Context())) == ["length"]  # a failed request is no answer
    assert list(all_values(["length"], table[:1], Context())) == ["length"]


def test_infinite_values_are_missing_for_the_engine_and_kept_in_the_table():
    values = MeasureValues("x", ValueKind.NUMBER, pd.DataFrame({"x": [1.0, np.inf, np.nan]}))
    assert values.has_value.tolist() == [True, False, False] and np.isnan(values.numbers[1, 0])
    assert np.isinf(values.table["x"][1])


def test_measures_read_their_table_by_prompt_and_have_no_value_of_what_was_not_drawn():
    """The table has other prompts' rows, in another order; an answer that was not classified or not scored has none."""
    answers = pd.DataFrame({"prompt_id": list("abcd"), "response": ["x", "y", "z", ""], "descriptor": "deaf"})
    likelihoods = pd.DataFrame(
        {
            "prompt_id": list("cae"),
            "log_likelihood": [-6.0, -1.0, 0.0],
            "other_log_likelihood": [-7.5, -3.0, 0.0],
            "tokens": [3, 1, 1],
        }
    )
    probabilities = pd.DataFrame({"prompt_id": list("dcba"), "offensiveness": [np.nan, 0.5, 0.4, 0.9]})
    context = Context(tables={"likelihoods_of_responses": likelihoods, "offensiveness": probabilities})

    def found(name):
        return measured_values(name, answers, context).numbers[:, 0]

    np.testing.assert_equal(found("relevance"), [2.0, np.nan, 1.5, np.nan])
    # 7 nats of 4 tokens; each answer differs by (nats − 7/4 · tokens) / 2 from it.
    np.testing.assert_allclose(found("response_perplexity"), [1.375, np.nan, 2.125, np.nan])
    np.testing.assert_equal(found("offensive"), [1, 0, 1, np.nan])


def declared(name="mine", kind="share", **options):
    return Measure(name, lambda answers, context: [], kind, "Its mean.", **options)


@pytest.mark.parametrize(
    ("kind", "found", "words"),
    [
        ("share", [True], "has 1 values for 2 answers"),
        ("share", [True, 2], "has the value 2; .* true or false"),
        ("share", [0, 0.5], "has the value 0.5; .* true or false"),
        ("probability", [0.5, "high"], "has the value 'high'; .* numbers from 0 to 1"),
        ("ratio", [-3, None], "has the value -3; .* numbers from 0 to inf"),
        ("number", ["one", 1], "has the value 'one'"),
    ],
)
def test_values_that_a_measure_cannot_have_are_named(kind, found, words):
    with pytest.raises(InputError, match=f"outcomes: mine {words}"):
        check_values(declared(kind=kind), found, 2)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("share", [True, None]),
        ("share", [np.float64(1), np.nan]),
        ("class", ["en", None]),
        ("probability", [np.float32(1.0000001), 0]),
        ("ratio", [0, 12]),
        ("number", [-np.inf, 3]),
    ],
)
def test_values_that_a_measure_can_have(kind, found):
    check_values(declared(kind=kind), found, 2)


def test_a_cost_is_the_name_of_one_metric(monkeypatch):
    with pytest.raises(ValueError, match="such as 'mine'"):
        declared(cost="words per sentence")
    monkeypatch.setattr(measures, "measure_names", lambda: ("mine", "yours"))
    monkeypatch.setattr(measures, "find_measure", lambda name: declared(name, cost="length"))
    with pytest.raises(InputError, match="mine and yours have the same cost, 'length'"):
        measures.all_measures()
