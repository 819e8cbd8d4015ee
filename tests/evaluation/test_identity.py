"""A run is what went into it: what must make another run does, and what must not does not."""

import json
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import load_family
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings
from evenhand.evaluation.model_settings import DecodingSettings, JudgeSettings, ModelSettings, StyleClassifierSettings
from evenhand.evaluation.models.revisions import model_revision, tokenizer_revision
from evenhand.evaluation.settings import identity_of
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.label import label
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tuning_settings import LabelSettings
from tests.measured_runs import write_measured

SERVED = ModelSettings(name="bot", server="http://one:1/v1")
JUDGED = StyleClassifierSettings(name="judge", judge=JudgeSettings(server="http://one:1/v1"))


@pytest.mark.parametrize(
    ("group", "field", "value", "differs"),
    [
        (ModelSettings(), "device", "cpu", False),
        (ModelSettings(), "dtype", "bfloat16", True),
        (ModelSettings(), "name", "another/path", False),  # the fingerprint of its files counts
        (SERVED, "server", "http://two:1/v1", True),
        (JUDGED.judge, "server", "http://two:1/v1", True),
        (DecodingSettings(), "arguments", {"temperature": 0.5}, True),
        (LabelSettings(), "quantile", 0.5, True),
        (MeasureSettings(), "output_dir", Path("elsewhere"), False),
    ],
)
def test_a_field_says_whether_it_counts(group, field, value, differs):
    assert (identity_of(group) != identity_of(group.replaced(**{field: value}))) is differs


def make_model(folder, **contents):
    folder.mkdir()
    for name, text in {"config.json": "{}", "model.safetensors": "weights", **contents}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_files_of_a_model_count_and_others_in_its_folder_do_not(tmp_path):
    code = {"config.json": json.dumps({"auto_map": {"AutoModel": "mycode.Model"}}), "mycode.py": "x = 1"}
    for name, contents in {"plain": {"mycode.py": "x = 1"}, "coded": code}.items():
        folder = make_model(tmp_path / name, **contents)
        before = model_revision(str(folder))
        for unrelated in ("notes.txt", "eval_results.json", "README.md", "events.log"):
            (folder / unrelated).write_text("new")
        assert model_revision(str(folder)) == before
        (folder / "mycode.py").write_text("x = 2")
        assert (model_revision(str(folder)) != before) is (name == "coded")
        before = model_revision(str(folder))
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tools.jinja").write_text("{{ messages }}")
        assert model_revision(str(folder)) != before


def test_the_name_of_a_file_counts(tmp_path):
    """A chat template is used only if its file has the name of one."""
    folder = make_model(tmp_path / "model", **{"chat_template.jinja": "{{ messages }}"})
    before = model_revision(str(folder)), tokenizer_revision(str(folder))
    (folder / "chat_template.jinja").rename(folder / "chat_template_off.jinja")
    after = model_revision(str(folder)), tokenizer_revision(str(folder))
    assert before[0] != after[0] and before[1] != after[1]


def test_content_that_moves_between_files_counts(tmp_path):
    revisions = {
        model_revision(str(make_model(tmp_path / name, **{"a.jinja": first, "b.jinja": second})))
        for name, first, second in (("one", "xy", "z"), ("two", "x", "yz"))
    }
    assert len(revisions) == 2


def test_texts_of_a_corpus_folder_count(tmp_path):
    (tmp_path / "corpus").mkdir()
    settings = ComparisonSettings(corpus=CorpusSettings(paths=[str(tmp_path / "corpus")]))
    inputs = []
    for text in ("An old man.", "A young man."):
        (tmp_path / "corpus" / "texts.txt").write_text(text)
        inputs.append(load_family("generation_bias")().comparison_inputs(settings))
    assert inputs[0] != inputs[1]


def test_a_run_that_reads_another_is_of_its_tables(tmp_path):
    """Two runs of one identity and different responses, as of a served model, in one order and in the other."""
    (tmp_path / "clusters.json").write_text('{"Z": ["z"]}')
    clusters = str(tmp_path / "clusters.json")
    runs = [
        write_measured(tmp_path / name, vectors, responses, has_scores=True, style_clusters=clusters)
        for name, vectors, responses in (
            ("s0", [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.1, 0.9, 0], [0.6, 0.4, 0]], "abcd"),
            ("s1", [[0.5, 0.5, 0]] * 2 + [[0.4, 0.6, 0]] * 2, "efgh"),
        )
    ]
    for one, other in (runs, runs[::-1]):
        settings = CompareSettings(before=one, after=other, output_dir=tmp_path / "compared", report_to="none")
        if one == runs[0]:
            compare(settings)
            compare(settings)  # finished
        else:
            with pytest.raises(InputError, match=r"inputs.before was .*; inputs.after was"):
                compare(settings)
    given = {"output_dir": tmp_path / "labels", "report_to": "none", "quantile": 0.5}
    labels = [LabelSettings(run=run, **given) for run in runs]
    label(labels[0])
    label(labels[0])  # finished
    with pytest.raises(InputError, match="inputs.run was"):
        label(labels[1])
