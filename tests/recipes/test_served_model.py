"""A model that a server has, by the commands: measured, gone on with, reported; its key in nothing that is left."""

import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation import metrics as families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.prompts import measurement_prompts
from evenhand.evaluation.models import loading, server
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import DecodingSettings, ModelSettings, PromptSettings
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import read_table
from evenhand.evaluation.tracking import Tracker
from evenhand.recipes.measure import measure
from evenhand.recipes.measurement import read_inputs
from evenhand.recipes.settings import FAMILY, LoopSettings, Measurement, MeasureSettings, measure_config
from tests.fault_server import serving, serving_alone
from tests.testbed_settings import generation_bias

CANARY = "canary-key-0123456789"
FILTERS = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def config(folder, url, **model):
    return MeasureSettings(
        model=ModelSettings(name="some-model", server=url, **model),
        prompts=PromptSettings(filters=FILTERS, descriptors=14, per_cell=2),
        generation_bias=generation_bias(permutations=0, control_tag=" <even>"),
        decoding=DecodingSettings(arguments={"max_new_tokens": 20}),
        output_dir=folder,
        report_to="none",
    )


def test_a_served_model_is_measured_once_for_each_prompt_and_the_key_is_left_nowhere(
    tmp_path, monkeypatch, caplog, capfd
):
    monkeypatch.setenv("EVENHAND_API_KEY", CANARY)
    monkeypatch.delattr(loading, "load_dialogue_model")  # no model is loaded
    run = tmp_path / "run"
    with serving("rate", "broken", "cut", "reset", seedless=True) as (url, seen):
        measure(config(run, url))
        prompts, responses = (read_table(run / f"{name}.parquet") for name in ("prompts", "responses"))
        assert len(responses) == 14 * 2 * 2 and responses["prompt_id"].equals(prompts["prompt_id"])
        contents = [body["messages"][0]["content"] for body in seen["bodies"]]
        assert set(contents) == {f"{text} <even>" for text in prompts["text"]}
        # Every response is to its own prompt: it ends with the seed that the prompt was sent.
        seeds = {body["seed"]: content for body, content in zip(seen["bodies"], contents, strict=True)}
        ends = [int(text.split()[-1]) for text in responses["response"]]
        assert [seeds[seed] for seed in ends] == [f"{text} <even>" for text in prompts["text"]]
        assert len(set(ends)) == len(ends)
        asked = len(seen["bodies"])
        measure(config(run, url, concurrency=3))  # finished: nobody is asked
        assert len(seen["bodies"]) == asked
    signature = find_score(read_scores(run / "scores.json"), "fgb_pooled_corrected").signature
    assert signature["server_seed"] == {"sent": 0, "verified": False} and signature["model"]["api"] == "chat"
    assert not {"server", "concurrency"} & signature["model"].keys()
    assert not {"relevance", "perplexity"} & {score.metric for score in read_scores(run / "scores.json")}
    assert "A server answered as some-model" in (run / "report.html").read_text()
    left = [file.read_bytes() for file in run.rglob("*") if file.is_file()]
    assert left and not any(CANARY.encode() in each for each in left)
    assert CANARY not in caplog.text + "".join(capfd.readouterr())


def test_a_killed_server_ends_the_run_in_one_line_and_the_next_run_asks_for_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "MAX_RETRIES", 0)
    asked = tmp_path / "asked"
    run = Store(tmp_path / "run", "a fingerprint", Tracker())

    def respond(url):
        settings = config(run.folder, url, concurrency=4)
        of_family = measure_config(settings, FAMILY)
        return of_family.open_model().respond(measurement_prompts(of_family), run)

    with serving_alone(asked, dies_after=30) as url, pytest.raises(InputError) as error:
        respond(url)
    assert "model.server: " in str(error.value) and "Connection error" in str(error.value)
    assert "\n" not in str(error.value)
    kept = pd.concat(map(read_table, (run.folder / "parts" / "responses").iterdir()))["response"]
    kept = {text.split()[-1] for text in kept}
    assert 30 - 4 <= len(kept) <= 30 and kept <= {*asked.read_text().split()}
    with serving_alone(asked) as url:
        seeds = [text.split()[-1] for text in respond(url)["response"]]
    assert len({*seeds}) == len(seeds) == 14 * 2 * 2
    assert sorted(asked.read_text().split()) == sorted({*seeds} - kept)


def test_scores_that_need_weights_are_refused_with_a_server(tmp_path):
    served = ModelSettings(name="some-model", server="http://127.0.0.1:1/v1")
    with pytest.raises(ValidationError, match=r"model\.server: embedding_bias "):
        Measurement(model=served, metrics=["generation_bias", "embedding_bias"])
    with pytest.raises(InputError, match=r"model\.tokenizer: .*'some-"):
        families.MeasureConfig(model=served).open_model().scoring_inputs()
    with pytest.raises(ValidationError, match=r"measure\.model\.server: the loop "):
        LoopSettings(measure=Measurement(model=served))
    settings = config(tmp_path / "run", served.server)
    settings.decoding = DecodingSettings(preset="paper")
    with pytest.raises(InputError, match="decoding: .* min_new_tokens"):
        read_inputs(settings)
