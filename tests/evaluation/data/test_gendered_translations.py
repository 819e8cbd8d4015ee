"""Gendered references in three formats, the paper's rule for comparable sets, and its languages."""

import json
import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd
import pytest

from evenhand.evaluation.data.gendered_translations import (
    COLUMNS,
    comparable_references,
    count_references,
    find_language,
    load_references,
    read_mmhb,
    read_mt_geneval,
    read_references,
    read_translations,
    select_source_sentences,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.prompt_settings import ReferenceSettings

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_mt_geneval = pytest.mark.skipif(not (SHARED / "mt_geneval").is_dir(), reason=f"no MT-GenEval in {SHARED}")

MMHB_HEADER = (
    "sentence_eng\tpattern_id_main\tnoun_id_main\tdesc_id_main\tsplit\tboth\tfeminine\tmasculine\tlang\tgender_group"
)


def make_table(*rows):
    """Return a table of references from rows of (sentence_id, lang, gender, reference)."""
    table = pd.DataFrame(rows, columns=["sentence_id", "lang", "gender", "reference"])
    return table.assign(english="English " + table["sentence_id"]).reindex(columns=COLUMNS)


def load(path, **settings):
    return load_references(ReferenceSettings(name=path, **settings))


def write(folder, text, name="references.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_order_of_rows_does_not_change_a_sentences_number(tmp_path):
    rows = [f"I {verb}.,spa_Latn,masculine,Yo {verb}." for verb in ("sing", "dance", "run")]
    for order in (rows, rows[::-1]):
        references = read_references(write(tmp_path, "\n".join(["english,lang,gender,reference", *order])))
        found = dict(zip(references["english"], references["sentence_id"], strict=True))
        assert found == {"I dance.": "1", "I run.": "2", "I sing.": "3"}


def test_a_csv_file(tmp_path):
    text = (
        "english,lang,gender,reference,axis,marked\n"
        'I am deaf.,spa_Latn,masculine,Soy sordo.,Ability,"[""sordo""]"\n'
        "I am deaf.,spa_Latn,feminine,Soy sorda.,Ability,\n"
        "I am tall.,spa_Latn,feminine,,,\n"
        "I sing.,spa_Latn,neutral,Canto.,,\n"
    )
    references = read_references(write(tmp_path, text))
    assert list(references) == COLUMNS
    assert references["sentence_id"].tolist() == ["1", "1", "3"]  # sentence 2 has no reference
    assert references["marked"].tolist() == [["sordo"], None, None]
    assert references["axis"].tolist() == ["Ability", "Ability", ""]


def test_null_and_blank_references_are_left_out(tmp_path):
    rows = [
        {"english": "I sing.", "lang": "es", "gender": "masculine", "reference": None},
        {"english": "I sing.", "lang": "es", "gender": "feminine", "reference": " "},
        {"english": "I sing.", "lang": "es", "gender": "neutral", "reference": "Canto."},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "references.jsonl")
    assert read_references(path)["gender"].tolist() == ["neutral"]
    path = write(tmp_path, json.dumps(rows[2] | {"lang": None}), "references.jsonl")
    with pytest.raises(InputError, match="lang ''"):
        read_references(path)


def test_an_mmhb_file(tmp_path):
    rows = [
        "I have deaf friends.\tP1\tN1\tP_D001\tdev\t\t['Tengo amigas sordas.', \"Tengo 'amigas' sordas.\"]\t"
        "['Tengo amigos sordos.']\tspa_Latn\tx",
        "I sing.\tP2\tN1\tP_D002\tdev\t['Canto.']\t[]\tnan\tspa_Latn\tx",
    ]
    references = read_mmhb(write(tmp_path, "\n".join([MMHB_HEADER, *rows]) + "\n"), {"P_D001": "ability"})
    assert references["gender"].tolist() == ["masculine", "feminine", "feminine", "neutral"]
    assert references["reference"].tolist()[2] == "Tengo 'amigas' sordas."
    assert references["descriptor"].tolist() == ["P_D001"] * 3 + ["P_D002"]
    assert references["template"].tolist() == ["P1"] * 3 + ["P2"]
    assert references["axis"].tolist() == ["ability"] * 3 + [""]
    assert references["sentence_id"].nunique() == 2


def test_the_multi_reference_of_mmhb_is_neutral_only_where_it_is_no_gendered_reference(tmp_path):
    rows = [
        # A woman: the multi-reference repeats the feminine reference, and gives no masculine one.
        "I have a deaf mother.\tP1\tN063\tP_D001\tdev\t['una madre sorda']\t['una madre sorda']\t[]\tspa_Latn\t"
        "feminine",
        # Without its own references, a sentence about a woman is still not about a man.
        "I have a rich mother.\tP1\tN063\tP_D002\tdev\t['una madre rica']\t\t\tspa_Latn\tfeminine",
        # Both genders: the multi-reference repeats both, and adds one that fits either.
        "I have a deaf kid.\tP1\tN051\tP_D001\tdev\t['un niño sordo', 'una niña sorda', 'prole sorda']\t"
        "['una niña sorda']\t['un niño sordo']\tspa_Latn\tboth",
    ]
    path = write(tmp_path, "\n".join([MMHB_HEADER, *rows]) + "\n")
    references = read_mmhb(path)
    assert list(zip(references["gender"], references["reference"], strict=True)) == [
        ("feminine", "una madre sorda"),
        ("masculine", "un niño sordo"),
        ("feminine", "una niña sorda"),
        ("neutral", "prole sorda"),
    ]
    assert read_mmhb(path, nouns=["N051"])["english"].unique().tolist() == ["I have a deaf kid."]
    with pytest.raises(InputError, match="nouns"):
        read_mmhb(path, nouns=["N999"])
    with pytest.raises(InputError, match="nouns"):
        load(write(tmp_path, "english,lang,gender,reference\nI.,es,feminine,Yo.\n", "own.csv"), nouns=["N051"])


def test_mmhb_is_read_from_its_zips_as_they_are_and_by_codes_of_three_letters(tmp_path):
    rows = {lang: f"I sing.\tP2\tN1\tP_D002a\tdev\t['{lang}']\t\t\t{lang}\tx" for lang in ("kor", "cmn", "spa")}
    with ZipFile(tmp_path / "mmhb_dataset.zip", "w") as file:
        for lang, row in rows.items():
            file.writestr(f"mmhb_dataset/{lang}/dev.csv", f"{MMHB_HEADER}\n{row}\n")
            file.writestr(f"mmhb_dataset/{lang}/train.csv", "not read")
    references = load(tmp_path / "mmhb_dataset.zip")
    assert set(references["lang"]) == {"kor_Hang", "cmn_Hans", "spa_Latn"} and set(references["axis"]) == {""}
    with ZipFile(tmp_path / "MMHB_descriptors.zip", "w") as file:
        file.writestr("MMHB_descriptors/spa_descriptors_full_id.tsv", "ID\tHB AXIS\nP_D002a\tage\n")
    references = load(tmp_path, languages=["ko", "spa"])  # a folder with both zips
    assert references["reference"].tolist() == ["kor", "spa"] and set(references["axis"]) == {"age"}
    assert find_language("kor").name == "Korean" and find_language("arb") == find_language("ar")
    (tmp_path / "other.zip").write_text("no zip")
    with pytest.raises(InputError, match="other.zip cannot be read"):
        load(tmp_path / "other.zip")


def test_a_damaged_zip_is_an_error(tmp_path):
    path = tmp_path / "mmhb.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        file.writestr("mmhb/spa/dev.csv", "a deaf mother " * 1000)
        start = file.getinfo("mmhb/spa/dev.csv").header_offset + 30 + len("mmhb/spa/dev.csv")
    content = bytearray(path.read_bytes())
    content[start : start + 8] = b"\xff" * 8  # no block of deflate begins like this
    path.write_bytes(content)
    with pytest.raises(InputError, match="mmhb.zip cannot be read"):
        load(path)


@pytest.mark.skipif(not (SHARED / "mmhb_descriptors").is_dir(), reason=f"no MMHB descriptors in {SHARED}")
def test_the_axes_of_mmhb_are_in_its_published_zip(tmp_path):
    shutil.copy(SHARED / "mmhb_descriptors" / "MMHB_descriptors.zip", tmp_path)
    for lang, descriptor in (("fra", "P_D001a"), ("kor", "P_D001")):
        (tmp_path / lang).mkdir()
        row = f"I sing.\tP2\tN1\t{descriptor}\tdev\t['x']\t\t\t{lang}\tx"
        write(tmp_path / lang, f"{MMHB_HEADER}\n{row}\n", "dev.csv")
    assert load(tmp_path)["axis"].tolist() == ["ability"] * 2


@needs_mt_geneval
@pytest.mark.parametrize("lang", ["de", "es", "fr"])
def test_mt_geneval_has_1200_sentences_in_two_versions(lang):
    references = read_mt_geneval(SHARED / "mt_geneval", lang)
    assert references["gender"].value_counts().to_dict() == {"masculine": 1200, "feminine": 1200}
    assert references["sentence_id"].nunique() == 1200 and set(references["lang"]) == {find_language(lang).code}
    assert references["marked"].isna().all()  # these files have no tags
    # Brackets, such as "[citation needed]", are part of the text.
    assert references["reference"].str.contains("[", regex=False).any()


def test_tags_of_the_annotated_mt_geneval_become_spans(tmp_path):
    for gender, pronoun, reference in (
        ("masculine", "<M>He</M>", "<M>El abuelo</M> [sic] de <M>él</M>."),
        ("feminine", "<F>She</F>", "<F>La abuela</F> [sic] de <F> ella</F>."),
    ):
        write(tmp_path, f"{pronoun} sat.\nIt sat.\n{pronoun}.\n", f"geneval-sentences-{gender}-dev.en_es.en")
        write(tmp_path, f"{reference}\nSe sentó.\n{pronoun}.\n", f"geneval-sentences-{gender}-dev.en_es.es")
    references = read_mt_geneval(tmp_path, "es")
    assert references["reference"].tolist()[::3] == ["El abuelo [sic] de él.", "La abuela [sic] de  ella."]
    assert references["english"].tolist() == ["He sat.", "It sat.", "He.", "She sat.", "It sat.", "She."]
    assert references["marked"].tolist() == [["El abuelo", "él"], [], ["He"], ["La abuela", "ella"], [], ["She"]]


def test_neutral_then_generic_references_replace_missing_ones_and_are_counted():
    references = make_table(
        ("1", "spa_Latn", "masculine", "m1"),
        ("1", "spa_Latn", "feminine", "f1"),
        ("2", "spa_Latn", "masculine", "m2"),
        ("2", "spa_Latn", "generic", "g2"),
        ("2", "spa_Latn", "neutral", "n2"),
        ("3", "spa_Latn", "generic", "g3"),
        ("4", "spa_Latn", "masculine", "m4"),  # no replacement for the feminine reference
        ("1", "fin_Latn", "generic", "g1"),
    )
    sets = comparable_references(references, min_masculine_references=1)
    languages = count_references(references, min_masculine_references=1)
    by_gender = sets.pivot(index="sentence_id", columns="gender", values=["reference", "taken_from"])
    assert by_gender["reference"].to_dict("index") == {
        "1": {"feminine": "f1", "masculine": "m1"},
        "2": {"feminine": "n2", "masculine": "m2"},
        "3": {"feminine": "g3", "masculine": "g3"},
    }
    assert by_gender["taken_from"]["feminine"].tolist() == ["feminine", "neutral", "generic"]
    finnish, spanish = languages.to_dict("records")
    assert spanish == {
        "lang": "spa_Latn",
        "sentences": 4,
        "masculine": 3,
        "feminine": 1,
        "neutral": 1,
        "generic": 2,
        "replaced_masculine": 1,
        "replaced_feminine": 2,
        "missing": 1,
        "left_out": None,
    }
    assert finnish["left_out"]
    assert set(sets["lang"]) == {"spa_Latn"}


def test_a_language_needs_100_masculine_references():
    rows = [(str(number), "spa_Latn", gender, "x") for number in range(100) for gender in ("masculine", "feminine")]
    assert count_references(make_table(*rows))["left_out"].tolist() == [None]
    with pytest.raises(InputError, match="spa_Latn 99"):
        comparable_references(make_table(*rows[2:]))


def test_ambiguous_english_is_translated_once_and_other_sources_twice():
    references = make_table(
        ("1", "spa_Latn", "masculine", "m1"),
        ("1", "spa_Latn", "feminine", "f1"),
        ("2", "spa_Latn", "masculine", "m2"),
        ("2", "spa_Latn", "feminine", "f2"),
        ("1", "cat_Latn", "masculine", "cm1"),
        ("1", "cat_Latn", "feminine", "cf1"),
    )
    references.loc[3, "english"] = "Her English 2"  # as in MT-GenEval
    table = comparable_references(references, min_masculine_references=0)
    english = select_source_sentences(table, source="eng_Latn", target="spa_Latn")
    assert sorted(zip(english["text"], english["gender"], strict=True)) == [
        ("English 1", ""),
        ("English 2", "masculine"),
        ("Her English 2", "feminine"),
    ]
    spanish = select_source_sentences(table, source="spa_Latn", target="eng_Latn")
    assert sorted(spanish["text"]) == ["f1", "f2", "m1", "m2"]
    # Catalan has only the first sentence.
    assert sorted(select_source_sentences(table, source="spa_Latn", target="cat_Latn")["text"]) == ["f1", "m1"]
    with pytest.raises(InputError, match="lang: 'fra_Latn'"):
        select_source_sentences(table, source="fra_Latn", target="eng_Latn")
    with pytest.raises(InputError, match="target: 'spa_Latn'"):
        select_source_sentences(table, source="spa_Latn", target="spa_Latn")


def test_translations_from_a_file(tmp_path, caplog):
    path = tmp_path / "es.txt"
    path.write_bytes("Soy ama de casa.\r\n\r\nCanto\u2028aquí.\n".encode())
    assert read_translations(path, 3) == ["Soy ama de casa.", "", "Canto\u2028aquí."]
    assert "1 of 3 translations are empty" in caplog.text
    with pytest.raises(InputError, match="3 lines for 4"):
        read_translations(path, 4)
    path.write_text("\n \n\n")
    with pytest.raises(InputError, match="only empty lines"):
        read_translations(path, 3)


def test_a_csv_may_have_any_language_and_codes_have_no_hyphen_within_a_pair(tmp_path):
    path = tmp_path / "references.csv"
    path.write_text("english,lang,gender,reference\nHi,pt-BR,masculine,Oi\nHi,pt-BR,feminine,Oi\nHi,es,feminine,Hola\n")
    settings = ReferenceSettings(name=path, languages=["pt-BR"])
    assert load_references(settings)["lang"].tolist() == ["pt_BR", "pt_BR"]
    with pytest.raises(InputError, match="has no xx, only pt_BR, spa_Latn"):
        load_references(settings.replaced(languages=["xx"]))
