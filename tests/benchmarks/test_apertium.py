"""Tests of the references for a translator in patterns with descriptors, and of its errors of agreement."""

import shutil

import pytest

from benchmarks.apertium import agreement_errors, common_references, pattern_references, translate
from evenhand.evaluation.data.gendered_translations import comparable_references, load_references
from evenhand.evaluation.metrics.translation_bias.metric import align, make_source_tables
from evenhand.evaluation.prompt_settings import ReferenceSettings

HEADER = "ID\tHB AXIS\tSEMANTIC FIELD (SENSE)\tOPTION DESCRIPTON [SL]\tSUGGESTED TRANSLATION [TL]"
DEAF = {  # the descriptor "Deaf"; Apertium's list has no other descriptor of this file
    "masculine_unspec_singular": "sordo",
    "masculine_unspec_plural": "sordos",
    "feminine_unspec_singular": "sorda",
    "feminine_unspec_plural": "sordas",
}


@pytest.fixture
def references(tmp_path):
    lines = [
        f"F_D900{letter}\tability\tauditory\t{form}_descriptor\t{DEAF[form]}"
        for letter, form in zip("abcd", DEAF, strict=True)
    ]
    lines += ["F_D901a\tability\tauditory\tunspec_unspec_unspec_descriptor\tcon sordera"]
    path = tmp_path / "spa_descriptors_full_id.tsv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    table = pattern_references(path)
    file = tmp_path / "patterns.csv"
    table.to_csv(file, index=False)
    return table, file


def test_patterns_have_a_masculine_and_a_feminine_reference_of_one_english_sentence(references):
    table, _ = references
    # Nine predicates with each of three nouns and with the descriptor alone, nine patterns with each noun; two genders.
    assert len(table) == (9 * (3 + 1) + 9 * 3) * 2
    assert set(table["descriptor"]) == {"Deaf"}
    by_english = table.groupby("english")
    assert set(by_english["gender"].agg(lambda genders: tuple(sorted(genders)))) == {("feminine", "masculine")}
    friend = by_english.get_group("I am a Deaf friend.").set_index("gender")["reference"]
    assert dict(friend) == {"masculine": "Soy un amigo sordo.", "feminine": "Soy una amiga sorda."}
    alone = by_english.get_group("I love being Deaf.").set_index("gender")["reference"]
    assert dict(alone) == {"masculine": "Me encanta ser sordo.", "feminine": "Me encanta ser sorda."}
    many = by_english.get_group("I hate Deaf neighbors.").set_index("gender")["reference"]
    assert dict(many) == {"masculine": "Odio a los vecinos sordos.", "feminine": "Odio a las vecinas sordas."}


def test_an_error_of_agreement_is_a_translation_with_words_of_both_genders(references):
    _, file = references
    table = comparable_references(load_references(ReferenceSettings(name=file)), min_masculine_references=0)
    sources = make_source_tables(table, ["en-xx"])["eng_Latn-spa_Latn"]
    translations = {
        "I am a Deaf friend.": "Soy una amiga sordo.",
        "I am not a Deaf friend.": "No soy una amiga sorda.",
        "Hi, I am a Deaf friend.": "Hola.",  # without a word that has a gender, and left out
        "I love being a Deaf friend.": "Me encanta ser un amigo sordo.",
    }
    chosen = sources[sources["text"].isin(translations)]
    chosen = chosen.assign(translation=chosen["text"].map(translations))
    rows = align(chosen, table, source="eng_Latn", target="spa_Latn")
    assert agreement_errors(rows) == pytest.approx(1 / 3)


@pytest.mark.skipif(shutil.which("apertium") is None, reason="apertium-eng-spa is not installed")
def test_apertium_translates_line_by_line_and_marks_unknown_words():
    assert translate(["I am tall.", "I am rich."], mark_unknown=True) == ["Soy alto.", "Soy rico."]
    assert "*" in translate(["neurodivergent"], mark_unknown=True)[0]
    assert "*" not in translate(["neurodivergent"])[0]


def test_sentences_with_references_in_both_languages_have_one_number(tmp_path):
    """Two of three English sentences of each language are the same; a pair is the same only if both genders are."""
    english = {"es": ["He sings.", "He runs.", "He left."], "fr": ["He runs.", "He sings.", "He stays."]}
    for language, lines in english.items():
        for gender, pronoun in (("masculine", "He"), ("feminine", "She")):
            name = f"geneval-sentences-{gender}-dev.en_{language}"
            texts = [line.replace("He", pronoun) for line in lines]
            (tmp_path / f"{name}.en").write_text("\n".join(texts) + "\n", encoding="utf-8")
            translated = [f"{language} {text}" for text in texts]
            (tmp_path / f"{name}.{language}").write_text("\n".join(translated) + "\n", encoding="utf-8")
    table = common_references(tmp_path, ["es", "fr"])
    assert len(table) == 2 * 2 * 2 and set(table["sentence_id"]) == {"0", "1"}
    of_first = table[(table["sentence_id"] == "0") & (table["gender"] == "feminine")].set_index("lang")["reference"]
    assert dict(of_first) == {"spa_Latn": "es She sings.", "fra_Latn": "fr She sings."}
