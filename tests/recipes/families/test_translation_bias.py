"""`measure` by translation and by embedding gaps at once: two families of one run, its files and what it refuses."""

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.embedding_bias.settings import Settings as EmbeddingSettings
from evenhand.evaluation.families.translation_bias.settings import Settings as TranslationSettings
from evenhand.evaluation.results import find_score, read_scores
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from tests.gendered_references import ROWS, written_references, written_translations


def test_a_run_by_translations_leaves_its_files_and_is_not_made_again(tmp_path):
    folder = written_translations(
        tmp_path / "given", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]], eng_Latn__tha_Thai=["a b c d e", "a b c d f"]
    )
    own = TranslationSettings(
        references=written_references(tmp_path), translations=folder, tokenize="13a", min_masculine_references=0
    )
    run = {"metrics": ["translation_bias"], "report_to": "none", "show": False, "output_dir": tmp_path / "run"}
    settings = MeasureSettings(**run, translation_bias=own)
    measure(settings)
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "translation_gap", direction="en-xx").n == 1
    assert "Spanish" in (tmp_path / "run" / "report.html").read_text()
    written = (tmp_path / "run" / "run.json").read_bytes()
    measure(settings)
    assert (tmp_path / "run" / "run.json").read_bytes() == written
    (folder / "eng_Latn-spa_Latn.txt").write_text("otra\ncosa\n")
    with pytest.raises(InputError, match="output_dir: .*translations.eng_Latn-spa_Latn.txt"):
        measure(settings)


def test_embedding_needs_an_encoder(tmp_path):
    own = EmbeddingSettings(references=written_references(tmp_path))
    with pytest.raises(InputError, match="model: the testbed has none"):
        measure(MeasureSettings(metrics=["embedding_bias"], embedding_bias=own, output_dir=tmp_path / "run"))
