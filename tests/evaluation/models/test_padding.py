"""Models whose answers padding or a shared prefix would change are found by a trial, not by their names."""

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model, loaded_dialogue_model
from evenhand.evaluation.models.padding import ignores_padding, shares_prefixes
from evenhand.mitigation.trainers import SFT, PreferenceTrainer
from tests.tiny_models import PAD, SPECIAL, WORDS, word_tokenizer
from tests.tiny_tokenizers import tiny_tokenizer

ENCODER = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "hidden_size": 32}
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
GEMMA = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": 32, "layer_types": LAYERS,
    "vocab_size_per_layer_input": len(WORDS), "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
}  # fmt: skip
# (type, sizes, whether padding on the left may stand beside longer rows, whether a prefix may be shared)
MODELS = [
    ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128}, True, True),
    ("roberta", {**ENCODER, "max_position_embeddings": 128, "is_decoder": True}, True, False),
    ("openai-gpt", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128}, True, False),
    ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": 128}, True, False),
    ("gpt_neo", {
        "hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
        "window_size": 4, "max_position_embeddings": 128,
    }, True, True),
    ("rwkv", {
        "context_length": 128, "hidden_size": 32, "attention_hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2,
    }, False, False),
    ("xlm", {"emb_dim": 32, "n_layers": 2, "n_heads": 2, "causal": True, "max_position_embeddings": 128}, False, False),
    ("gemma3n_text", GEMMA, True, True),
    ("gemma4_text", {**GEMMA, "global_head_dim": 16}, True, True),
]  # fmt: skip


def model_of(name, sizes):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**{**SPECIAL, **sizes})).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    return network


def answers(model, contexts):
    found = {}
    for batch in generate_responses(model, contexts, [0] * len(contexts), {"do_sample": False, "max_new_tokens": 6}):
        found.update(batch)
    return [found[row].ids for row in range(len(contexts))]


@pytest.mark.parametrize(("name", "sizes", "may_pad", "may_share"), MODELS, ids=[model[0] for model in MODELS])
def test_answers_and_likelihoods_depend_on_no_other_row(name, sizes, may_pad, may_share):
    network = model_of(name, sizes)
    assert (ignores_padding(network), shares_prefixes(network, is_padded=True)) == (may_pad, may_share)
    letters = np.random.default_rng(0)
    rows = [" ".join(letters.choice(list("abcdefghij"), size=n)) for n in (2, 5, 9, 14, 3)]
    with loaded_dialogue_model(network, word_tokenizer()) as model:
        for prefix in ("", "a b c d e f g h i j "):
            contexts = [prefix + row for row in rows]
            assert answers(model, contexts) == [answers(model, [context])[0] for context in contexts]
            together = dict(_scores(model, contexts))
            for row, context in enumerate(contexts):
                ((_, alone),) = _scores(model, [context])
                assert together[row] == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize(("name", "sizes", "may_pad", "may_share"), MODELS, ids=[model[0] for model in MODELS])
def test_less_precise_numbers_are_judged_alike(name, sizes, may_pad, may_share):
    network = model_of(name, sizes).bfloat16()
    assert (ignores_padding(network), shares_prefixes(network, is_padded=True)) == (may_pad, may_share)


@pytest.mark.parametrize(("name", "sizes"), [model[:2] for model in MODELS if not model[2]])
@pytest.mark.parametrize("trainer", [SFT, PreferenceTrainer])
def test_a_model_that_reads_padding_is_trained_on_rows_as_if_they_were_alone(name, sizes, trainer):
    """Padding stands on the right, where a causal model has read the row already."""
    network = model_of(name, sizes)
    rows = [
        {"prompt_ids": [3, 4], "chosen_ids": [5], "rejected_ids": [6, 7]},
        {"prompt_ids": [3, 4, 5, 6, 7], "chosen_ids": [8, 9, 3], "rejected_ids": [4]},
    ]
    if trainer is SFT:
        rows = [{"input_ids": row["prompt_ids"] + row["chosen_ids"], "labels": row["prompt_ids"]} for row in rows]
    with loaded_dialogue_model(network, word_tokenizer()) as model, torch.inference_mode():
        batch = trainer.collator(model, PAD)(rows)
        logits = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        for ids, mask, found in zip(batch["input_ids"], batch["attention_mask"], logits, strict=True):
            n = int(mask.sum())
            alone = network(input_ids=ids[None, :n], attention_mask=mask[None, :n], use_cache=False).logits[0]
            torch.testing.assert_close(found[:n], alone, atol=1e-4, rtol=1e-4)


def _scores(model, contexts):
    for rows, sums, _ in response_log_likelihoods(model, contexts, ["k l m"] * len(contexts)):
        yield from zip(rows.tolist(), sums.tolist(), strict=True)


@pytest.mark.parametrize("name", ["gemma3n_text", "gemma4_text"])
def test_a_model_whose_layers_differ_in_size_is_loaded(name, tmp_path):
    dict_of = {model[0]: model[1] for model in MODELS}
    model_of(name, dict_of[name]).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    assert load_dialogue_model(str(tmp_path)).kind == "dialogue"


def test_a_decoder_classifier_finds_the_last_token_by_the_padding_of_its_config(tmp_path):
    tokenizer = tiny_tokenizer("byte-level BPE", "line")
    tokenizer.pad_token = None  # as many Llama tokenizers
    torch.manual_seed(0)
    labels = {0: "a", 1: "b", 2: "c"}
    sizes = {**ENCODER, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**sizes, id2label=labels, problem_type="single_label_classification")
    config.pad_token_id = PAD
    model = transformers.LlamaForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classifier = load_style_classifier(str(tmp_path))
    alone, _ = classifier.classify(["Hello"])
    in_batch, _ = classifier.classify(["Hello", "Tell me about the rain: it is wet."])
    np.testing.assert_allclose(in_batch[0], alone[0], atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "rwkv", "xlm"])
def test_a_trained_row_has_the_loss_that_it_has_alone(name):
    network = model_of(name, {model[0]: model[1] for model in MODELS}[name])
    rows = []
    for length in (3, 9, 20):
        context = list(range(3, 3 + length))
        rows.append({"input_ids": [*context, 5, 6, 0], "labels": [*[-100] * length, 5, 6, 0]})
    with loaded_dialogue_model(network, word_tokenizer()) as model:
        collate = SFT.collator(model, PAD)
        with torch.no_grad():
            alone = [network(**collate([row])).loss.item() for row in rows]
            together = network(**collate(rows)).loss.item()
    assert together == pytest.approx(np.mean(alone), abs=1e-4)
