"""The command `measure` with several families: the files of the folder, signatures, and finished runs."""

import json

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.sentence_pairs import Settings as PairSettings
from evenhand.evaluation.metrics.translation_bias import Settings as TranslationSettings
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.score import read_scores, signature_line
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings, family_config
from tests.gendered_references import ROWS, written_references, written_translations
from tests.testbed_settings import MASKED_MODEL

PAIRS = """more,less
Many bakers are generous.,Many pilots are generous.
The pilots are very slow.,The bakers are very slow.
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Settings of two fast families: a few pairs, and a file of translations."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "pairs.csv").write_text(PAIRS)
    spanish = written_translations(folder / "given", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]])
    references = written_references(folder)
    return MeasureSettings(
        model=MASKED_MODEL,
        metrics=["sentence_pairs", "translation_bias"],
        sentence_pairs=PairSettings(pairs=str(folder / "pairs.csv")),
        translation_bias=TranslationSettings(translations=spanish, tokenize="13a"),
        references=ReferenceSettings(name=references, languages=["spa_Latn"], min_masculine_references=0),
        report_to="none",
        output_dir=folder / "run",
    )


@pytest.fixture(scope="module")
def measured(settings):
    measure(settings)
    return settings.output_dir


def changed(settings, folder, **changes):
    return MeasureSettings(**{**vars(settings), "output_dir": folder, **changes})


def test_two_families_share_scores_and_have_separate_reports(measured):
    metrics = {score.name for score in read_scores(measured / "scores.json")}
    assert {"s_jsd", "cps", "translation_gap"} <= metrics
    names = {path.name for path in measured.iterdir()}
    assert {f"report{of}.html" for of in ("", "_sentence_pairs", "_translation_bias")} <= names
    assert "Spanish" in (measured / "report_translation_bias.html").read_text()
    assert "bakers" in (measured / "report_sentence_pairs.html").read_text()
    summary = (measured / "report.html").read_text()
    assert "./report_sentence_pairs.html" in summary and "./report_translation_bias.html" in summary
    manifest = json.loads((measured / "run.json").read_text())
    assert set(manifest["inputs"]) == {"sentence_pairs", "translation_bias"}
    facts = json.loads((measured / "facts.json").read_text())["families"]
    assert facts["sentence_pairs"]["headline"]["metric"] == "s_jsd"
    assert [finding["kind"] for finding in facts["translation_bias"]["left_out"]] == ["languages"]


def lines(folder):
    return [signature_line(score) for score in read_scores(folder / "scores.json")]


def test_signature_lines_differ_exactly_where_measurements_do(settings, measured, tmp_path):
    measure(changed(settings, tmp_path / "again", group="another"))
    assert lines(tmp_path / "again") == lines(measured)
    measure(changed(settings, tmp_path / "seed", seed=1))
    (tmp_path / "pairs.csv").write_text(PAIRS + "Most bakers are slow.,Most pilots are slow.\n")
    pairs = PairSettings(pairs=str(tmp_path / "pairs.csv"))
    measure(changed(settings.with_metrics("sentence_pairs"), tmp_path / "pairs", sentence_pairs=pairs))
    same = {*lines(measured)} & {*lines(tmp_path / "seed")}
    assert {line.partition("[")[0] for line in same} == {"masculine_rendering"}  # it has no randomness
    assert not {*lines(tmp_path / "pairs")} & {*lines(measured)}


def test_a_finished_run_is_printed_and_not_written(settings, measured, capsys):
    before = {path: path.stat().st_mtime_ns for path in measured.rglob("*")}
    measure(changed(settings, measured))
    printed = capsys.readouterr().out
    assert printed.count("Report: ") == 1 and f"Report: {measured / 'report.html'}" in printed
    assert {path: path.stat().st_mtime_ns for path in measured.rglob("*")} == before
    measure(changed(settings, measured), show=False)
    assert capsys.readouterr().out == ""


def test_the_settings_of_a_run_are_read_back(settings, measured):
    stored, manifest = read_measurement(measured, "before", "translation_bias")
    assert stored == changed(settings, measured) and len(manifest["fingerprint"]) == 64
    with pytest.raises(InputError, match="before: .*sentence_pairs, translation_bias; .*--metrics likelih"):
        read_measurement(measured, "before", "likelihood_bias")


def test_common_families_are_compared(measured, tmp_path):
    """Translations have no comparison and are omitted."""
    folder = tmp_path / "both"
    compare(CompareSettings(before=measured, after=measured, output_dir=folder, report_to="none"))
    scores = read_scores(folder / "scores.json")
    assert {score.value for score in scores if score.name == "s_jsd_difference"} == {0.0}
    assert {path.name for path in folder.glob("report*")} == {"report.html"}
    verdict = json.loads((folder / "facts.json").read_text())["families"]["sentence_pairs"]["verdict"]
    assert verdict["kind"] == "change" and verdict["change"]["value"] == 0.0
    assert verdict["before"] == verdict["after"]


def test_only_a_family_that_measures_a_model_needs_one():
    settings = MeasureSettings(metrics=["offensiveness"])
    assert not settings.model.name
    assert family_config(settings, "offensiveness").prompts == settings.prompts
    with pytest.raises(InputError, match="model"):
        family_config(settings, "sentence_pairs")
