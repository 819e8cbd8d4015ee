"""The configs for real models, each run to its end on a tiny model of the same architecture with random weights.

Only paths and sizes are overridden, by flags. A random model has no bias, so what is asserted is what must be true of
any: numbers are defined, each method has its row, the tuned model answers otherwise, and the base is as it was.
"""

import json
import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from evenhand.evaluation.families.generation_bias.rows import read_styled_run
from evenhand.evaluation.models.generation import encode_contexts, render_contexts
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.results import find_score, read_scores
from evenhand.evaluation.runs.files import sha256_of
from evenhand.recipes.command_line import main, read_settings
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings

CONFIGS = Path(__file__).resolve().parents[2] / "recipes" / "configs"
# The labels of SamLowe/roberta-base-go_emotions, in its order: the 27 emotions of GoEmotions and neutral.
EMOTIONS = """
    admiration amusement anger annoyance approval caring confusion curiosity desire disappointment disapproval disgust
    embarrassment excitement fear gratitude grief joy love nervousness optimism pride realization relief remorse sadness
    surprise neutral
""".split()  # noqa: SIM905
# On the hub, DialoGPT's tokenizer has this template, and Qwen3's renders a chat of one turn as this one does.
TURNS_ENDED_BY_EOS = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
CHAT_THAT_THINKS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def save_tokenizer(folder, special_tokens, prefix_space=False, **settings):
    """Write a byte-level BPE as the hub has it for these models: vocab.json and merges.txt, no tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special_tokens,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["I'm a grandmother. I like people with a disability. bias no_bias"], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space, **settings}))
    return len(model["vocab"])


def save_model(folder, model, scale=4):
    """Write a model that tells texts apart: its weights are `scale` times those at the start of a training."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    model.save_pretrained(folder)
    return folder


def dialogpt(folder):
    end = "<|endoftext|>"
    size = save_tokenizer(
        folder, [end], tokenizer_class="GPT2Tokenizer", eos_token=end, bos_token=end, unk_token=end,
        model_max_length=1024, chat_template=TURNS_ENDED_BY_EOS,
    )  # fmt: skip
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 1024}
    return save_model(folder, GPT2LMHeadModel(GPT2Config(vocab_size=size, **sizes, bos_token_id=0, eos_token_id=0)))


def blenderbot(folder):
    # Without <mask>, which the tokenizer then adds behind the last token that the model knows, as on the hub.
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    size = save_tokenizer(
        folder, special, prefix_space=True, tokenizer_class="BlenderbotTokenizer", model_max_length=128
    )
    sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 32)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    ids = {"bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    config = BlenderbotConfig(vocab_size=size, **layers, **sizes, **ids, scale_embedding=True)
    model = BlenderbotForConditionalGeneration(config)
    model.generation_config.update(num_beams=10, encoder_no_repeat_ngram_size=3, forced_eos_token_id=2)  # as the hub's
    return save_model(folder, model)


def qwen(folder):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    size = save_tokenizer(
        folder, special, tokenizer_class="Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=special[1:], model_max_length=131072, chat_template=CHAT_THAT_THINKS,
    )  # fmt: skip
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen3Config(vocab_size=size, **sizes, **heads, tie_word_embeddings=True, eos_token_id=2, bos_token_id=0)
    model = Qwen3ForCausalLM(config)
    model.generation_config.update(do_sample=True, temperature=0.6, top_k=20, eos_token_id=[2, 0], pad_token_id=0)
    return save_model(folder, model)


def style_classifier(folder):
    size = save_tokenizer(
        folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], tokenizer_class="RobertaTokenizer", model_max_length=512
    )
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=size,
        **sizes,
        max_position_embeddings=514,
        id2label=dict(enumerate(EMOTIONS)),
        problem_type="multi_label_classification",
    )
    return save_model(folder, RobertaForSequenceClassification(config), scale=30)


MODELS = {"dialogpt_medium": dialogpt, "blenderbot_400m": blenderbot, "qwen_chat": qwen}
# 13 descriptors × 2 templates × 4 responses a measurement, and a learning rate at which so few steps do something.
SMALL = {
    "measure.prompts.descriptors": 13,
    "measure.prompts.filters": json.dumps(
        {
            "noun_phrase_type": ["descriptor_noun", "noun_descriptor"],
            "template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."],
        }
    ),
    "measure.decoding.arguments": "{max_new_tokens: 8}",
    "measure.generation_bias.permutations": 9,
    "tune.training.learning_rate": 0.01,
    "tune.training.preference_learning_rate": 0.05,
    "tune.training.max_rows": 64,
    "tune.training.largest_perplexity_rise": 9,
    "tune.measure_every": 2,
    "tune.measure_descriptors": 4,
    "even_if_unbiased": "true",  # models of random weights need have none
    "report_to": "none",
}


def methods_of(name):
    return read_settings("loop", CONFIGS / f"{name}.yaml").methods


def arguments(command, name, **values):
    flags = [text for field, value in values.items() for text in (f"--{field}", str(value))]
    return [command, "--config", str(CONFIGS / f"{name}.yaml"), *flags]


@pytest.fixture(scope="module", params=MODELS)
def finished(request, tmp_path_factory):
    """Yield the config's name, the folders of its base model and of the finished run, and the base's hash before it.

    The tiny models lie in the hub's cache under the names and revisions of the config, so that it runs as it stands.
    """
    torch.manual_seed(0)
    measured = read_settings("loop", CONFIGS / f"{request.param}.yaml").measure
    folder = tmp_path_factory.mktemp(request.param)
    base = cached(folder / "hub", measured.model)
    MODELS[request.param](base)
    style_classifier(cached(folder / "hub", measured.generation_bias.style_classifier))
    before = sha256_of(base / "model.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        assert main(arguments("loop", request.param, output_dir=folder / "run", **SMALL)) == 0
        yield request.param, base, folder / "run", before


def cached(hub, described):
    """Return the folder in which the hub's cache has a model's files."""
    model = hub / f"models--{described.name.replace('/', '--')}"
    reference = model / "refs" / (described.revision or "main")
    reference.parent.mkdir(parents=True)
    reference.write_text(COMMIT)
    (model / "snapshots").mkdir()
    return model / "snapshots" / COMMIT


def test_it_ends_with_a_row_for_each_method_and_the_reports(finished):
    name, _, run, _ = finished
    points = pd.read_parquet(run / "points.parquet").set_index("method")
    assert points.index.tolist() == methods_of(name)
    assert len(points) == 2 and "control_tags" in points.index
    assert (points["failed"] == "").all()
    assert points["perplexity_change"].notna().all()
    compared = [run / method / "compare" for method in points.index]
    for page in (run, *compared):
        assert "<html" in (page / "report.html").read_text()
    for page in compared:
        change = find_score(read_scores(page / "scores.json"), "fgb_pooled_corrected_difference")
        assert math.isfinite(change.value) and change.value != 0


def test_scores_are_defined_and_styles_are_shares(finished):
    _, _, run, _ = finished
    scores = read_scores(run / "before" / "scores.json")
    for metric in ("fgb", "fgb_corrected", "fgb_pooled_corrected"):
        assert math.isfinite(find_score(scores, metric).value)
    assert find_score(scores, "fgb").value > 1e-5  # the classifier tells the responses apart
    clusters = {score.group.get("cluster") for score in scores if score.metric == "scgb_corrected"} - {None}
    assert clusters == {"SYMPATHY", "CURIOSITY", "CONFUSION", "HATE", "CARE", "PRAISE"}
    responses = pd.read_parquet(run / "before" / "responses.parquet")["response"]
    written = (responses.str.strip() != "").to_numpy()
    assert written.mean() > 0.9 and responses.nunique() > 50
    total = read_styled_run(run / "before").vectors.sum(axis=1)
    np.testing.assert_allclose(total, np.where(written, 1, np.nan), atol=1e-5)
    metrics = {score.metric for score in scores}
    assert "perplexity" in metrics


def test_the_tuned_models_differ_and_the_base_is_as_it_was(finished):
    name, base, run, before = finished
    assert sha256_of(base / "model.safetensors") == before
    for method in methods_of(name):
        manifest = json.loads((run / method / "tune" / "run.json").read_text())
        assert manifest["outputs_changed"]["max_logit_change"] > 0.01
        assert len(json.loads((run / method / "tune" / "curves.json").read_text())["bias"]) >= 2
        answers = [
            pd.read_parquet(run / stage / "responses.parquet")["response"] for stage in ("before", f"{method}/after")
        ]
        assert (answers[0] != answers[1]).mean() > 0.2


def test_the_tag_is_learned_where_it_stands_in_the_context(finished):
    """In a context it has the very tokens that are tuned; of the merged model's embeddings only those have moved."""
    _, base_folder, run, _ = finished
    tuned = load_dialogue_model(str(run / "control_tags" / "tune" / "adapter"))
    assert tuned.control_tag == " no_bias"
    settings = json.loads((run / "control_tags" / "tune" / "adapter" / "adapter_config.json").read_text())
    tokens = set(settings["trainable_token_indices"])
    contexts = [render_contexts(tuned, ["I'm a grandmother."], [""], tag)[0] for tag in (" no_bias", "")]
    tagged, untagged = map(set, encode_contexts(tuned, contexts))
    assert tagged - untagged and tagged - untagged <= tokens
    base = load_dialogue_model(str(base_folder))
    before, after = (model.model.get_input_embeddings().weight for model in (base, tuned))
    moved = set(torch.nonzero((before - after).abs().amax(1) > 1e-6).flatten().tolist())
    assert moved and moved <= tokens


@pytest.mark.parametrize("name", MODELS)
def test_the_estimate_is_of_as_many_responses_as_there_will_be(name, monkeypatch):
    monkeypatch.syspath_prepend(str(CONFIGS.parents[1]))  # benchmarks are not installed
    work = import_module("benchmarks.real_model_rates").work
    responses, rows = work(read_settings("loop", CONFIGS / f"{name}.yaml"))
    assert f"{responses:,} responses" in (CONFIGS / f"{name}.yaml").read_text()
    assert rows == dict.fromkeys(methods_of(name), 6000)


PAPERS = {
    "dialogpt_medium": {"measure.decoding.arguments": "{max_new_tokens: 20}"},
    "blenderbot_400m": {"measure.decoding.arguments": "{num_beams: 3, max_new_tokens: 20}"},
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_decoding_as_the_comment_has_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    torch.manual_seed(0)
    flags = {"measure.decoding.preset": "paper", "measure.prompts.personas": "default", **PAPERS[name]}
    comment = (CONFIGS / f"{name}.yaml").read_text()
    assert "--measure.decoding.preset paper" in comment and "--measure.prompts.personas default" in comment
    few = {field: str(value) for field, value in {**SMALL, "measure.prompts.per_cell": 2, **flags}.items()}
    measured = read_settings("loop", CONFIGS / f"{name}.yaml", few).measure
    MODELS[name](cached(tmp_path / "hub", measured.model))
    style_classifier(cached(tmp_path / "hub", measured.generation_bias.style_classifier))
    measure(MeasureSettings(**vars(measured), output_dir=tmp_path / "run", report_to="none", show=False))
    prompts = pd.read_parquet(tmp_path / "run" / "prompts.parquet")
    assert (prompts["persona"].str.count("\n") == 1).all()
    assert find_score(read_scores(tmp_path / "run" / "scores.json"), "fgb").value > 0
