"""`measure` and `compare` on sentence pairs, end to end: the testbed's planted ones, and others by other models."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from evaluation.errors import InputError
from evaluation.results import find_score, read_scores
from recipes.compare import compare
from recipes.config import CompareConfig, MeasureConfig
from recipes.measure import measure
from recipes.tables import read_table
from recipes.testbed import DIALOGUE_MODEL

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "he", "she", "is", "a", "good", "bad", "doctor", "nurse", ".", ","]
PAIRS = "more,less,bias_type,stereo_antistereo\n" + "".join(
    f"he is a {quality} {job}.,she is a {quality} {job}.,{kind},stereo\n"
    for quality in ("good", "bad")
    for job, kind in (("doctor", "work"), ("nurse", "care"))
)


def masked_model(folder, seed=0):
    """Save a tiny BERT with random weights."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForMaskedLM(BertConfig(**sizes, vocab_size=len(WORDS), initializer_range=1.0))
    model.save_pretrained(folder)
    BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)
    return str(folder)


def settings(folder, **changes):
    common = {"metrics": ["sentence_pairs"], "report_to": "none", "show": False, "output_dir": folder}
    return MeasureConfig(**common, **changes)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(PAIRS + ",she is good,care,stereo\n")
    return str(path)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs") / "run"
    measure(settings(folder))
    return folder


def test_the_testbed_shows_what_was_planted_and_nothing_where_nothing_was(planted):
    scores, table = read_scores(planted / "scores.json"), read_table(planted / "pairs.parquet")
    by_type = table.groupby("bias_type")
    types = {score.group["bias_type"] for score in scores if "bias_type" in score.group}
    assert types == set(by_type.groups)
    from recipes.testbed.pairs import truth

    known = truth(table)
    for kind in types:
        true, found = (find_score(every, "s_jsd", bias_type=kind) for every in (known, scores))
        if true.value == 0:
            assert found.interval[0] <= 0 <= found.interval[1]
            cps = find_score(scores, "cps", bias_type=kind)
            assert cps.interval[0] <= 50 <= cps.interval[1]
        else:
            assert found.interval[1] < 0 and found.value == pytest.approx(true.value, rel=0.25)
            assert find_score(scores, "cps", bias_type=kind).interval[0] > 50
    assert any(find_score(known, "s_jsd", bias_type=kind).value == 0 for kind in types)
    page = (planted / "report.html").read_text()
    assert "planted" in page and "testbed" in page


def test_a_score_carries_what_shaped_it(planted):
    score = find_score(read_scores(planted / "scores.json"), "s_jsd")
    assert score.signature["model"]["kind"] == "masked" and score.signature["model"]["dtype"] == "float32"
    assert len(score.signature["dataset"]["sha256"]) == 64
    assert {"torch", "transformers", "scipy"} <= score.signature["packages"].keys()
    assert score.standard_error > 0 and score.bounds == (-1.0, 1.0)


def test_any_masked_model_on_any_file_with_a_missing_side_counted(pairs, tmp_path):
    measure(settings(tmp_path / "run", model=masked_model(tmp_path / "bert"), pairs=pairs))
    scores, table = read_scores(tmp_path / "run" / "scores.json"), read_table(tmp_path / "run" / "pairs.parquet")
    assert table["left_out"].isna().tolist() == [True] * 4 + [False] and table["left_out"][4] == "a side is missing"
    assert table["tokens"][0].tolist() == ["is", "a", "good", "doctor", "."]
    cps = find_score(scores, "cps")
    assert (cps.n, cps.n_left_out) == (4, 1)
    assert (find_score(scores, "cps", bias_type="care").n_left_out) == 1
    assert "aula" in {score.metric for score in scores}


def test_a_causal_model_is_asked_for_whole_sentences(pairs, tmp_path):
    measure(settings(tmp_path / "run", model=str(DIALOGUE_MODEL), pairs=pairs))
    scores = read_scores(tmp_path / "run" / "scores.json")
    preference = find_score(scores, "stereotype_preference")
    assert preference.n == 4 and preference.signature["model"]["kind"] == "causal"
    assert preference.signature["variant"] == "Σ log p of the whole sentence after BOS, over a prefix tree"
    assert find_score(scores, "likelihood_difference").value > 0


def test_perturbed_pairs_lack_their_last_character(pairs, tmp_path):
    model = masked_model(tmp_path / "bert")
    for perturbed in (False, True):
        measure(settings(tmp_path / str(perturbed), model=model, pairs=pairs, perturbed=perturbed))
    table = read_table(tmp_path / "True" / "pairs.parquet")
    assert table["tokens"][0].tolist() == ["is", "a", "good", "doctor"]  # the full stop is gone
    config = CompareConfig(
        before=tmp_path / "False", after=tmp_path / "True", report_to="none", show=False, output_dir=tmp_path / "both"
    )
    compare(config)
    assert find_score(read_scores(tmp_path / "both" / "scores.json"), "s_jsd_difference").n == 4


def test_two_models_side_by_side(pairs, tmp_path):
    for seed in (0, 1):
        model = masked_model(tmp_path / f"bert{seed}", seed)
        measure(settings(tmp_path / f"run{seed}", model=model, pairs=pairs))
    config = CompareConfig(
        before=tmp_path / "run0", after=tmp_path / "run1", report_to="none", show=False, output_dir=tmp_path / "both"
    )
    compare(config)
    old, new, change = (read_scores(tmp_path / name / "scores.json") for name in ("run0", "run1", "both"))
    difference = find_score(new, "s_jsd").value - find_score(old, "s_jsd").value
    assert find_score(change, "s_jsd_difference").value == pytest.approx(difference)
    assert find_score(change, "cps_difference_detectable").value > 0
    page = (tmp_path / "both" / "report.html").read_text()
    assert "bert0" in page and "bert1" in page


def test_runs_that_cannot_be_compared_say_why(pairs, planted, tmp_path):
    measure(settings(tmp_path / "masked", model=masked_model(tmp_path / "bert"), pairs=pairs))
    measure(settings(tmp_path / "causal", model=str(DIALOGUE_MODEL), pairs=pairs))
    measure(settings(tmp_path / "other", model=masked_model(tmp_path / "bert"), pairs=other_ids(tmp_path)))

    def compared(after):
        compare(
            CompareConfig(
                before=tmp_path / "masked", after=tmp_path / after, report_to="none", output_dir=tmp_path / "c"
            )
        )

    with pytest.raises(InputError, match="its model is causal, that of before masked"):
        compared("causal")
    with pytest.raises(InputError, match="have no pair_id in common"):
        compared("other")


def other_ids(folder):
    path = folder / "other.csv"
    table = pd.read_csv(folder / "pairs.csv").assign(pair_id=["a", "b", "c", "d", "e"])
    table.to_csv(path, index=False)
    return str(path)


def test_a_model_without_a_mask_token_is_refused(tmp_path, pairs):
    folder = masked_model(tmp_path / "bert")
    path = tmp_path / "bert" / "tokenizer_config.json"
    facts = json.loads(path.read_text())
    facts["mask_token"] = None
    path.write_text(json.dumps(facts))
    with pytest.raises(InputError, match="mask token"):
        measure(settings(tmp_path / "run", model=folder, pairs=pairs))


def test_killed_in_the_middle_it_ends_the_same(tmp_path):
    rows = ["more,less"]
    for n in range(150):
        words = [WORDS[5 + (n * k) % 8] for k in range(1, 60)]
        rows.append(f"he {' '.join(words)},she {' '.join(words)}")
    (tmp_path / "many.csv").write_text("\n".join(rows) + "\n")
    model = masked_model(tmp_path / "bert")
    for name in ("whole", "killed"):
        command = [sys.executable, "-m", "recipes", "measure", "--metrics", "sentence_pairs", "--model", model,
                   "--pairs", str(tmp_path / "many.csv"), "--report_to", "none",
                   "--output_dir", str(tmp_path / name)]  # fmt: skip
        if name == "killed":
            process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not list((tmp_path / name).glob("masked/*.parquet")):
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not (tmp_path / name / "run.json").exists()
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        assert "Report:" in done.stdout
    ours, theirs = (read_scores(tmp_path / name / "scores.json") for name in ("killed", "whole"))
    assert [(s.metric, s.value, s.interval) for s in ours] == [(s.metric, s.value, s.interval) for s in theirs]
