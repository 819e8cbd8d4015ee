"""Translation gaps from references to scores and page, on references small enough to check by eye."""

import pytest
import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.translation_bias import Settings, TranslationBias
from evenhand.evaluation.model_settings import ModelSettings, OffensiveClassifierSettings
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import find_score
from tests.family_runs import measure_tests
from tests.gendered_references import ROWS, written_references, written_translations
from tests.tiny_models import SEQ2SEQ


def make_config(references=None, model="translator", languages=(), classifier=None, **settings):
    return FamilyConfig(
        model=ModelSettings(name=model),
        references=ReferenceSettings(name=references, languages=languages, min_masculine_references=0),
        offensive_classifier=classifier or OffensiveClassifierSettings(),
        settings=Settings(**{"tokenize": "13a", **settings}),
    )


def measured(folder, config):
    return measure_tests(folder, "translation_bias", config)


@pytest.fixture
def references(tmp_path):
    return written_references(tmp_path)


def test_masculine_translations_score_100_against_masculine_references(references, offensiveness_classifier, tmp_path):
    folder = written_translations(
        tmp_path / "translations",
        eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]],
        eng_Latn__tha_Thai=["a b c d e", "a b c d f"],
    )
    toxicity = OffensiveClassifierSettings(name=offensiveness_classifier, label="offensive")
    run = measured(tmp_path / "run", make_config(references, translations=folder, classifier=toxicity))
    toxic = find_score(run.scores, "added_toxicity")
    assert toxic.n == 4 and toxic.signature["offensiveness_classifier"]["label"] == "offensive"
    group = {"lang": "spa_Latn", "direction": "en-xx"}
    masculine, feminine = (find_score(run.scores, "bleu", **group, gender=g).value for g in ("masculine", "feminine"))
    assert masculine == pytest.approx(100) and feminine < 60
    gap = find_score(run.scores, "translation_gap", **group)
    assert gap.value == pytest.approx(masculine - feminine)
    assert gap.signature["translations"]["name"] == str(folder) and "model" not in gap.signature
    assert find_score(run.scores, "masculine_rendering", **group).value == 1.0
    thai = find_score(run.scores, "translation_gap", lang="tha_Thai", direction="en-xx")
    assert thai.value != thai.value and "feminine" in thai.reason
    assert "Spanish" in page_html(TranslationBias().page(run))


def test_languages_are_chosen_and_missing_files_are_written_first(references, tmp_path):
    folder = written_translations(tmp_path / "files", spa_Latn__eng_Latn=["I like old dentists"] * 4)
    chosen = {"languages": ["es"], "directions": ["xx-en"]}
    run = measured(tmp_path / "run", make_config(references, translations=folder, **chosen))
    table = run.table("translations")
    assert table["pair"].unique().tolist() == ["spa_Latn-eng_Latn"]
    assert sorted(table["gender"]) == ["feminine", "feminine", "masculine", "masculine"]
    folder = tmp_path / "files"
    config = make_config(references, translations=folder, languages=["es"])
    with pytest.raises(InputError, match=r"1 of 1 files \(eng_Latn-spa_Latn.txt\).*sources"):
        TranslationBias().inputs(config)
    sources = folder / "sources" / "eng_Latn-spa_Latn.txt"
    assert sources.read_text().splitlines() == ["I like old dentists", "I like new artists"]
    sources.rename(folder / sources.name)
    assert measured(tmp_path / "run", config).scores


def translation_model(folder):
    """Save an NLLB of random weights, whose tokenizer knows letters and languages."""
    letters = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyzI"]
    tokenizer = NllbTokenizer(vocab={letter: n for n, letter in enumerate(letters)}, merges=[])
    torch.manual_seed(0)
    sizes = {name: size for name, size in SEQ2SEQ.items() if "token" not in name}
    config = M2M100Config(vocab_size=len(tokenizer), max_position_embeddings=128, **sizes)
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_model_translates_in_every_direction(references, tmp_path):
    directions = ["en-xx", "xx-en", "xx-xx"]
    config = make_config(references, model=translation_model(tmp_path / "model"), directions=directions)
    run = measured(tmp_path / "run", config)
    table = run.table("translations")
    assert sorted(table["pair"].unique()) == [
        "eng_Latn-spa_Latn", "eng_Latn-tha_Thai", "spa_Latn-eng_Latn",
        "spa_Latn-tha_Thai", "tha_Thai-eng_Latn", "tha_Thai-spa_Latn",
    ]  # fmt: skip
    assert table["translation"].map(lambda text: isinstance(text, str)).all()
    assert {score.group.get("direction") for score in run.scores} >= {*directions}
    assert run.signature("translation_gap")["model"]["revision"] == TranslationBias().inputs(config)["model"]
    assert "By source" in page_html(TranslationBias().page(run))
