"""Activated LoRA: without its tokens the base, with them the same from a cache, in a batch, and from a folder."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models import batches
from evenhand.evaluation.models.activation import activation_arguments, invocation_in, last_occurrence
from evenhand.evaluation.models.batches import shared_tokens
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from tests.tiny_models import WORDS, tiny

TAG = "y z"  # two words
INVOCATION = [WORDS.index(word) for word in TAG.split()]
PREFIX = "a b c d e f g h i"  # long enough to be shared
CONTEXTS = [f"{PREFIX} {rest} {TAG}<eos>" for rest in ("j", "k l", "m n o")]


def adapted(base, adapter_tokens=INVOCATION):
    """A copy of a tiny model with an activated adapter whose effect is large."""
    torch.manual_seed(1)
    config = LoraConfig(
        r=4, target_modules="all-linear", task_type="CAUSAL_LM", alora_invocation_tokens=list(adapter_tokens)
    )
    network = get_peft_model(tiny("llama").model, config)
    for name, weight in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    return replace(base, model=network.eval())


@pytest.fixture(scope="module")
def base():
    return tiny("llama")


@pytest.fixture(scope="module")
def model(base):
    return adapted(base)


@pytest.fixture(scope="module")
def folder(base, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    base.model.save_pretrained(str(path / "base"))
    base.tokenizer.save_pretrained(str(path / "base"))
    model.model.peft_config["default"].base_model_name_or_path = str(path / "base")
    model.model.save_pretrained(str(path / "adapter"))
    base.tokenizer.save_pretrained(str(path / "adapter"))
    (path / "adapter" / "evenhand.json").write_text(f'{{"control_tag": " {TAG}"}}')
    return path


def ids_of(text):
    return [WORDS.index(word) for word in text.replace("<eos>", " <eos>").split()]


def by_hand(model, context, response):
    """Σ log p of the response and its end, of one sequence, in which PEFT itself finds the tokens."""
    ids = ids_of(context) + ids_of(f"{response}<eos>")
    n = len(ids_of(f"{response}<eos>"))
    with torch.no_grad():
        log_p = model.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(log_p[position - 1, ids[position]].item() for position in range(len(ids) - n, len(ids)))


def scores(model, contexts, responses):
    found = np.full(len(contexts), np.nan)
    for rows, sums, _ in response_log_likelihoods(model, contexts, responses):
        found[rows] = sums
    return found


def test_without_the_tag_the_logits_are_those_of_the_base_to_the_bit_and_with_it_they_are_not(base, model):
    untagged = torch.tensor([ids_of(f"{PREFIX} j y<eos>")])  # the first token of the tag alone is not the tag
    tagged = torch.tensor([ids_of(CONTEXTS[0])])
    with torch.no_grad():
        assert torch.equal(model.model(input_ids=untagged).logits, base.model(input_ids=untagged).logits)
        before, after = base.model(input_ids=tagged).logits[0], model.model(input_ids=tagged).logits[0]
        start = tagged.shape[1] - 3  # y z EOS
        assert torch.equal(after[:start], before[:start])
        assert (after[start:] - before[start:]).abs().max() > 0.1
        with model.model.disable_adapter():
            assert torch.equal(model.model(input_ids=tagged).logits[0], before)


def test_scores_from_a_shared_cache_are_those_of_single_sequences(base, model, monkeypatch):
    # Where everybody has the same context, the tag is in what all rows have in common.
    contexts = [*CONTEXTS, *[CONTEXTS[0]] * 3]
    responses = ["p q", "r", "s t u", "p", "q r", "t"]
    expected = [by_hand(model, context, response) for context, response in zip(contexts, responses, strict=True)]
    assert scores(model, contexts, responses) == pytest.approx(expected, abs=1e-4)
    same = scores(model, contexts[3:], responses[3:])
    assert same == pytest.approx(expected[3:], abs=1e-4)
    of_base = [by_hand(base, context, response) for context, response in zip(contexts, responses, strict=True)]
    assert min(np.abs(np.subtract(expected, of_base))) > 0.05  # a test that could fail
    monkeypatch.setattr(batches, "MIN_SHARED_TOKENS", 99)  # no cache
    assert scores(model, contexts, responses) == pytest.approx(expected, abs=1e-4)


def test_what_is_shared_ends_before_the_adapter_starts(base, model):
    rows = [ids_of(f"{CONTEXTS[0]} {word}") for word in "pqr"]
    assert shared_tokens(base.model, rows) == len(ids_of(CONTEXTS[0]))
    assert shared_tokens(model.model, rows) == len(ids_of(f"{PREFIX} j"))


def test_the_last_occurrence_in_the_context_counts_also_if_the_response_has_the_tokens(model):
    history = f"{PREFIX} {TAG} j<eos> {PREFIX} k {TAG}<eos>"
    assert last_occurrence(ids_of(history), INVOCATION) == len(ids_of(f"{PREFIX} {TAG} j<eos> {PREFIX} k"))
    assert activation_arguments(model.model, [ids_of(history), [5]], [30, 4]) == {"alora_offsets": [7, None]}
    assert scores(model, [history] * 2, ["p", "q r"]) == pytest.approx(
        [by_hand(model, history, "p"), by_hand(model, history, "q r")], abs=1e-4
    )
    # PEFT would start at the tag in the response; the context says where the adapter has started.
    response = f"p {TAG} q"
    ids = ids_of(CONTEXTS[0]) + ids_of(f"{response}<eos>")
    n_context = len(ids_of(CONTEXTS[0]))
    with torch.no_grad():
        offsets = [len(ids) - n_context + 3]
        log_p = model.model(input_ids=torch.tensor([ids]), alora_offsets=offsets).logits[0].log_softmax(-1)
    expected = sum(log_p[position - 1, ids[position]].item() for position in range(n_context, len(ids)))
    assert scores(model, [CONTEXTS[0]], [response])[0] == pytest.approx(expected, abs=1e-4)
    assert abs(expected - by_hand(model, CONTEXTS[0], response)) > 0.01


def greedy(model, contexts, openings=None):
    found = {}
    decoding = {"do_sample": False, "max_new_tokens": 6}
    for batch in generate_responses(model, contexts, [0] * len(contexts), decoding, openings=openings):
        found |= batch
    return [found[row].text for row in range(len(contexts))]


def by_hand_greedy(model, context, opening=""):
    ids = ids_of(context) + ids_of(opening)
    start = last_occurrence(ids_of(context), INVOCATION)
    for _ in range(6):
        arguments = {} if start is None else {"alora_offsets": [len(ids) - start]}
        with torch.no_grad():
            ids.append(int(model.model(input_ids=torch.tensor([ids]), **arguments).logits[0, -1].argmax()))
        if ids[-1] == 0:
            break
    words = [WORDS[index] for index in ids[len(ids_of(context)) :]]
    return " ".join(word for word in words if not word.startswith("<"))


def test_generation_in_batches_from_a_cache_is_that_of_single_sequences_without_a_cache(base, model):
    contexts = [*CONTEXTS, f"{PREFIX} j<eos>"]
    assert greedy(model, contexts) == [by_hand_greedy(model, context) for context in contexts]
    assert greedy(model, contexts)[3] == by_hand_greedy(base, contexts[3])
    assert greedy(model, contexts)[:3] != [by_hand_greedy(base, context) for context in CONTEXTS]
    opening = f"p {TAG}"  # the tokens in an opening do not move the start
    assert greedy(model, CONTEXTS[:1], [ids_of(opening)])[0] == by_hand_greedy(model, CONTEXTS[0], opening)


def test_sentences_are_scored_by_the_base(base, model):
    sentences = pd.DataFrame({"text": [f"a b {TAG} c", "a b d", "a e"]})

    def found(scorer):
        return pd.concat(sentence_log_likelihoods(scorer, sentences))["log_likelihood"].sort_index().tolist()

    assert found(model) == pytest.approx(found(base), abs=1e-5)


def test_it_is_loaded_unmerged_with_a_strength_and_refuses_beams(folder, base, model):
    path = str(folder / "adapter")
    loaded = load_dialogue_model(path)
    assert isinstance(loaded.model, PeftModel) and invocation_in(folder / "adapter") == INVOCATION
    assert scores(loaded, CONTEXTS, ["p"] * 3) == pytest.approx(scores(model, CONTEXTS, ["p"] * 3), abs=1e-5)
    weak = load_dialogue_model(ModelSettings(name=path, adapter_strength=1e-6))
    assert scores(weak, CONTEXTS, ["p"] * 3) == pytest.approx(scores(base, CONTEXTS, ["p"] * 3), abs=1e-4)
    assert LoadedModel(ModelSettings(name=path)).load().control_tag == f" {TAG}"
    beams = LoadedModel(ModelSettings(name=path), DecodingSettings(preset="paper"))
    with pytest.raises(InputError, match=r"^decoding\.num_beams: \d+; .*activated"):
        beams.check()


def test_contexts_without_the_tokens_are_refused_at_loading(folder, tmp_path):
    other = tmp_path / "adapter"
    other.mkdir()
    for file in (folder / "adapter").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "evenhand.json").write_text('{"control_tag": " x"}')
    with pytest.raises(InputError, match="^model: .*'y z'"):
        LoadedModel(ModelSettings(name=str(other))).load()
