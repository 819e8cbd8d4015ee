"""`measure` and `compare` on sentence pairs and translations, end to end."""

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.translation_bias import Settings as TranslationSettings
from evenhand.evaluation.score import find_score, read_scores
from evenhand.recipes.compare import compare
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import CompareSettings, MeasureSettings
from tests.forked_commands import wait_until
from tests.gendered_references import ROWS, written_references, written_translations
from tests.testbed_settings import MASKED_MODEL, PAIRS

QUIET = {"report_to": "none", "show": False}
TESTBED_PAIRS = {"model": MASKED_MODEL, "metrics": ["sentence_pairs"], "sentence_pairs": {"pairs": PAIRS}}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs") / "run"
    measure(
        MeasureSettings(
            model=MASKED_MODEL, metrics=["sentence_pairs"], sentence_pairs={"pairs": PAIRS}, output_dir=folder, **QUIET
        )
    )
    return folder


def test_planted_pairs_are_reported_and_compared(planted, tmp_path):
    page = (planted / "report.html").read_text()
    assert "S_JSD" in page and "masked_model" in page
    compare(CompareSettings(before=planted, after=planted, output_dir=tmp_path / "both", **QUIET))
    changes = [s for s in read_scores(tmp_path / "both" / "scores.json") if s.metric == "s_jsd_difference"]
    assert {score.value for score in changes} == {0.0}
    assert (tmp_path / "both" / "report.html").exists()


def test_killed_in_the_middle_it_ends_the_same(tmp_path, commands):
    people = ["cats", "dogs", "poets", "cyclists"]
    rows = [f"Many {one} will admire {other}.,Most {one} will admire {other}." for one in people for other in people]
    (tmp_path / "many.csv").write_text("\n".join(["more,less", *rows * 25]) + "\n")
    for name in ("whole", "killed"):
        flags = ["--config", "testbed_pairs", "--sentence_pairs.pairs", str(tmp_path / "many.csv")]
        command = ["measure", *flags, "--report_to", "none", "--output_dir", str(tmp_path / name)]
        if name == "killed":
            running, parts = commands.start(*command), tmp_path / name / "parts" / "sentence_pairs" / "masked"
            wait_until(lambda: list(parts.glob("*.parquet")) or running.status() is not None)  # noqa: B023
            assert running.status() is None, running.stderr
            running.kill()
            assert not (tmp_path / name / "run.json").exists()
        assert "Report:" in commands.run(*command).stdout
    ours, theirs = (read_scores(tmp_path / name / "scores.json") for name in ("killed", "whole"))
    assert [(s.metric, s.value, s.interval) for s in ours] == [(s.metric, s.value, s.interval) for s in theirs]


def test_a_run_by_translations_leaves_its_files_and_is_not_made_again(tmp_path):
    folder = written_translations(
        tmp_path / "given", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]], eng_Latn__tha_Thai=["a b c d e", "a b c d f"]
    )
    own = TranslationSettings(
        references=written_references(tmp_path), translations=folder, tokenize="13a", min_masculine_references=0
    )
    run = {
        "model": MASKED_MODEL,
        "metrics": ["translation_bias"],
        "report_to": "none",
        "show": False,
        "output_dir": tmp_path / "run",
    }
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
