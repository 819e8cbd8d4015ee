"""`measure` by translation and by embedding gaps, end to end, on references small enough to check by eye."""

import csv
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    NllbTokenizer,
)

from evaluation.errors import InputError
from evaluation.results import find_score, read_scores
from recipes.config import MeasureConfig
from recipes.measure import measure
from recipes.tables import read_table

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "mt_geneval"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no MT-GenEval in {SHARED}")
COLUMNS = ["sentence_id", "axis", "descriptor", "template", "english", "lang", "gender", "reference"]
ROWS = [
    ["1", "age", "old", "t", "I like old dentists", "spa_Latn", "masculine", "me gustan los dentistas viejos hoy"],
    ["1", "age", "old", "t", "I like old dentists", "spa_Latn", "feminine", "me gustan las dentistas viejas hoy"],
    ["2", "age", "new", "t", "I like new artists", "spa_Latn", "masculine", "me gustan los artistas nuevos hoy"],
    ["2", "age", "new", "t", "I like new artists", "spa_Latn", "feminine", "me gustan las artistas nuevas hoy"],
    ["1", "age", "old", "t", "I like old dentists", "tha_Thai", "neutral", "a b c d e"],
    ["2", "age", "new", "t", "I like new artists", "tha_Thai", "masculine", "a b c d f"],
    ["2", "age", "new", "t", "I like new artists", "tha_Thai", "neutral", "a b c d g"],
]


@pytest.fixture
def references(tmp_path):
    path = tmp_path / "references.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *ROWS])
    return path


def settings(folder, metric, **changes):
    common = {"metrics": [metric], "tokenize": "13a", "fewest_masculine": 0, "report_to": "none", "show": False}
    return MeasureConfig(**{**common, **changes}, output_dir=folder)


def hypotheses(folder, **files):
    folder.mkdir()
    for name, lines in files.items():
        (folder / f"{name.replace('__', '-')}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_masculine_translations_score_100_against_masculine_references(references, judge, tmp_path):
    folder = hypotheses(
        tmp_path / "given", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]], eng_Latn__tha_Thai=["a b c d e", "a b c d f"]
    )
    given = {"references": references, "translations": folder}
    given |= {"offensiveness_classifier": judge, "offensive_label": "offensive"}
    measure(settings(tmp_path / "run", "translation_bias", **given))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "added_toxicity").n == 4
    group = {"lang": "spa_Latn", "direction": "en-xx"}
    masculine, feminine = (find_score(scores, "bleu", **group, gender=g).value for g in ("masculine", "feminine"))
    assert masculine == pytest.approx(100) and feminine < 60
    assert find_score(scores, "translation_gap", **group).value == pytest.approx(masculine - feminine)
    assert find_score(scores, "masculine_rendering", **group).value == 1.0
    thai = find_score(scores, "translation_gap", lang="tha_Thai", direction="en-xx")
    assert thai.value != thai.value and "feminine" in thai.reason
    page = (tmp_path / "run" / "report.html").read_text()
    assert "spa_Latn" in page or "Spanish" in page


def test_languages_and_directions_can_be_chosen(references, tmp_path):
    folder = hypotheses(tmp_path / "given", spa_Latn__eng_Latn=["I like old dentists"] * 4)
    measure(
        settings(
            tmp_path / "run",
            "translation_bias",
            references=references,
            translations=folder,
            languages=["es"],
            directions=["xx-en"],
        )
    )
    table = read_table(tmp_path / "run" / "translations.parquet")
    assert table["pair"].unique().tolist() == ["spa_Latn-eng_Latn"] and sorted(table["gender"]) == [
        "feminine", "feminine", "masculine", "masculine"
    ]  # fmt: skip


def test_what_is_missing_is_said(references, tmp_path):
    with pytest.raises(InputError, match="references: none are given"):
        measure(settings(tmp_path / "a", "translation_bias"))
    with pytest.raises(InputError, match="the testbed has no translation model"):
        measure(settings(tmp_path / "b", "translation_bias", references=references))
    with pytest.raises(InputError, match="lang: 'klingon' is unknown"):
        measure(
            settings(
                tmp_path / "c", "translation_bias", references=references, translations=tmp_path, languages=["klingon"]
            )
        )
    folder = hypotheses(tmp_path / "given", eng_Latn__spa_Latn=["one line"])
    given = {"references": references, "translations": folder}
    with pytest.raises(InputError, match="has 1 lines for 2 sentences"):
        measure(settings(tmp_path / "d", "translation_bias", **given, languages=["es"]))


def test_a_missing_file_says_what_to_translate_and_the_run_goes_on_with_it(references, tmp_path):
    given = {"references": references, "translations": tmp_path / "given", "languages": ["es"]}
    config = settings(tmp_path / "run", "translation_bias", **given)
    with pytest.raises(InputError, match=r"lacks 1 of 1 files \(eng_Latn-spa_Latn.txt\); translate those in .*sources"):
        measure(config)
    sources = tmp_path / "run" / "sources" / "eng_Latn-spa_Latn.txt"
    assert sources.read_text().splitlines() == ["I like old dentists", "I like new artists"]
    (tmp_path / "given").mkdir()
    sources.rename(tmp_path / "given" / sources.name)
    measure(config)
    assert (tmp_path / "run" / "scores.json").exists()


@needs_data
def test_human_translations_of_mt_geneval(tmp_path):
    lines = {
        gender: (SHARED / f"geneval-sentences-{gender}-dev.en_es.es").read_text(encoding="utf-8").split("\n")[:-1]
        for gender in ("masculine", "feminine")
    }
    folder = hypotheses(tmp_path / "given", eng_Latn__spa_Latn=[*lines["masculine"], *lines["feminine"]])
    given = {"references": SHARED, "translations": folder, "languages": ["es"]}
    measure(settings(tmp_path / "run", "translation_bias", **given))
    scores = read_scores(tmp_path / "run" / "scores.json")
    group = {"lang": "spa_Latn", "direction": "en-xx"}
    assert find_score(scores, "bleu", **group, gender="masculine").value == pytest.approx(100)
    assert find_score(scores, "gender_accuracy", **group, gender="feminine").value > 0.99


def translation_model(folder):
    """Save an NLLB of random weights, whose tokenizer knows letters and languages."""
    letters = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyzI"]
    tokenizer = NllbTokenizer(vocab={letter: n for n, letter in enumerate(letters)}, merges=[])
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    torch.manual_seed(0)
    config = M2M100Config(vocab_size=len(tokenizer), max_position_embeddings=128, **sizes)
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_model_translates_in_every_direction(references, tmp_path):
    config = settings(
        tmp_path / "run",
        "translation_bias",
        references=references,
        model=translation_model(tmp_path / "model"),
        directions=["en-xx", "xx-en", "xx-xx"],
    )
    measure(config)
    table = read_table(tmp_path / "run" / "translations.parquet")
    assert sorted(table["pair"].unique()) == [
        "eng_Latn-spa_Latn", "eng_Latn-tha_Thai", "spa_Latn-eng_Latn",
        "spa_Latn-tha_Thai", "tha_Thai-eng_Latn", "tha_Thai-spa_Latn",
    ]  # fmt: skip
    assert table["translation"].map(lambda text: isinstance(text, str)).all()
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert {score.group.get("direction") for score in scores} >= {"en-xx", "xx-en", "xx-xx"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Every pair" in page and "Spanish" in page


def sentence_encoder(folder):
    torch.manual_seed(0)
    words = sorted({word for row in ROWS for text in (row[4], row[7]) for word in text.lower().split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(**sizes, vocab_size=len(vocabulary))).save_pretrained(folder)
    BertTokenizer(vocab={word: n for n, word in enumerate(vocabulary)}).save_pretrained(folder)
    return str(folder)


def test_embedding_gaps_by_language(references, tmp_path):
    given = {"references": references, "model": sentence_encoder(tmp_path / "encoder")}
    measure(settings(tmp_path / "run", "embedding_bias", **given))
    scores, table = (
        read_scores(tmp_path / "run" / "scores.json"),
        read_table(tmp_path / "run" / "cosines.parquet"),
    )
    spanish = table[table["lang"] == "spa_Latn"].pivot(index="sentence_id", columns="gender", values="cosine")
    gap = find_score(scores, "embedding_gap", lang="spa_Latn")
    assert gap.value == pytest.approx((spanish["masculine"] - spanish["feminine"]).mean(), abs=1e-6) and gap.n == 2
    assert find_score(scores, "embedding_gap", lang="tha_Thai").reason
    assert gap.signature["model"]["texts_cut"] == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_embedding_needs_an_encoder(references, tmp_path):
    with pytest.raises(InputError, match="the testbed has no sentence encoder"):
        measure(settings(tmp_path, "embedding_bias", references=references))
