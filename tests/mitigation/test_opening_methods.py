"""The methods `shrink` and `opening` on tiny models: both act on the first tokens of a response only."""

import ast
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.contexts import encode_contexts, encode_responses, render_contexts
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.likelihood.tokens import encode_pairs, response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.tables import join_batches
from evenhand.mitigation.card import EXAMPLE
from evenhand.mitigation.edited_likelihoods import edited_log_likelihoods
from evenhand.mitigation.hidden_state_maps import edited, edited_generation, load_maps
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.opening import OpenedModel
from evenhand.mitigation.methods.shrink import MAPS_FILE, ShrunkModel
from evenhand.mitigation.shrinking import _perplexity, fit_shrink
from evenhand.mitigation.training_rows import ReadDialogue, TrainingRows
from evenhand.mitigation.two_part_likelihoods import two_part_log_likelihoods
from tests.mitigation.tiny_dialogue import QUICK, tiny_base, tokenizer

LETTERS = "abcdefgh"
TEXTS = [f"{letter} j" for letter in LETTERS]
RESPONSES = ["red sun blue", "blue sky", "sun", "red red red red red sky"] * 2
LABELLED = pd.DataFrame(
    {
        "prompt_id": list(LETTERS),
        "text": TEXTS,
        "persona": "",
        "template": "t",
        "noun": "n",
        "descriptor": list(LETTERS),
        "response": RESPONSES,
        "label": "bias",
    }
)
DECODING = DecodingSettings(arguments={"max_new_tokens": 6})


def render(texts, personas, tag):
    return [f"{text}{tag}<eos>" for text in texts]


def loaded(base):
    model = LoadedModel(ModelSettings(name=base.name), DECODING, tag="")
    model.engine = base
    return model


def tiny_llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=17, **sizes, initializer_range=0.2, eos_token_id=0, pad_token_id=1)
    return DialogueModel(transformers.LlamaForCausalLM(config).eval(), tokenizer(), "dialogue", "tiny", "r0")


def fitted(base, folder, **settings):
    """Fit `shrink` to the labelled responses; return the folder of the maps and the result."""
    method = trained_method("shrink", {"shrink": trained_method("shrink").Settings(**settings)})
    rows = method.rows(LABELLED, render)
    data = TrainingRows(method=method, train=rows, validation=rows.select([0, 3]))
    result = fit_shrink(base, data, QUICK, folder, card={"alpha": 0})
    return result.path, result


def answers(model):
    return join_batches(model.respond(LABELLED))["response"].tolist()


def test_shrink_makes_predictions_more_alike_and_strength_0_is_the_base(tmp_path):
    base = tiny_base()
    folder, result = fitted(base, tmp_path, first_tokens=2, ridge=0.05)
    (_, before), (_, after) = result.validation_losses
    assert 0 < after < before / 2
    facts = json.loads((folder / "evenhand.json").read_text())
    assert facts["method"] == "shrink" and facts["training"]["n_train"] == 8
    model = loaded(base)
    plain = answers(model)
    assert answers(ShrunkModel(model, folder, 0.0)) == plain
    shrunk = ShrunkModel(model, folder, 1.0)
    assert answers(shrunk) != plain and answers(model) == plain
    assert shrunk.changes == {"shrink": 1.0, "shrink_maps": sha256_of(folder / MAPS_FILE)}
    scored = join_batches(ShrunkModel(model, folder, 0.0).log_likelihood(LABELLED))
    log_p, n_tokens = response_perplexity(base, render(TEXTS, None, ""), RESPONSES)
    np.testing.assert_allclose(scored["log_likelihood"], log_p, atol=1e-4)
    assert scored["tokens"].tolist() == n_tokens.tolist()


def test_what_a_tuning_reports_is_of_the_strength_that_is_used(tmp_path):
    """The card's code loads the maps with this strength."""
    base = tiny_base()
    found = {}
    for strength in (0.0, 0.5, 1.0):
        folder = tmp_path / str(strength)
        folder.mkdir()
        _, result = fitted(base, folder, first_tokens=2, ridge=0.05, strength=strength)
        found[strength] = result
    before, none = (loss for _, loss in found[0.0].validation_losses)
    assert none == before and found[0.0].perplexity[0] == found[0.0].perplexity[1]
    losses = [found[strength].validation_losses[1][1] for strength in (0.0, 0.5, 1.0)]
    assert losses[0] > losses[1] > losses[2]
    assert found[0.5].perplexity[1] != found[1.0].perplexity[1]


def test_shrunk_responses_are_scored_token_by_token(tmp_path):
    base = tiny_base()
    folder, _ = fitted(base, tmp_path, first_tokens=3)
    maps = load_maps(folder / MAPS_FILE)
    contexts = render(TEXTS, None, "")
    found, _ = edited_log_likelihoods(base, maps, 1.0, *encode_pairs(base, contexts, RESPONSES))
    for row, (head, tail) in enumerate(
        zip(encode_contexts(base, contexts), encode_responses(base, contexts, RESPONSES), strict=True)
    ):
        total = 0.0
        for j, token in enumerate(tail):
            with edited(base.model, maps) as editor, torch.no_grad():
                editor.columns = len(head) - 1 + torch.arange(min(j + 1, 3))[None]
                logits = base.model(torch.tensor([[*head, *tail[:j]]])).logits[0, -1]
            total += logits.log_softmax(-1)[token].item()
        assert found[row] == pytest.approx(total, abs=1e-4)


def test_a_response_that_is_too_long_has_no_likelihood_with_maps_either():
    base = tiny_base()
    too_long = " ".join(["red"] * 300)
    contexts = render(TEXTS[:2], None, "")
    ids = encode_pairs(base, contexts, ["red sun blue", too_long])
    scored = edited_log_likelihoods(base, {}, 1.0, *ids)
    expected = two_part_log_likelihoods(base, base, 3, *ids)
    np.testing.assert_allclose(scored[0], expected[0], atol=1e-4)
    assert np.isfinite(scored[0]).tolist() == [True, False]
    with pytest.raises(InputError, match="too long"):  # of neutral dialogue, before any map is fitted to blame
        _perplexity(base, ReadDialogue(contexts, ["red sun blue", too_long]), {})


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_the_loader_on_the_card_does_the_same(tmp_path, strength):
    base = replace(tiny_llama(), name='models/a"); import os')
    folder, _ = fitted(base, tmp_path, strength=strength)
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    loader, program = code.split("source = ")  # a program for the saved model; this one is in memory
    _, example = code.split("shrink(model)\n")
    ids = torch.tensor(encode_contexts(base, render(TEXTS, None, "")))
    options = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 1}
    with edited_generation(base.model, load_maps(folder / MAPS_FILE), strength):
        ours = base.model.generate(ids, **options).tolist()
    plain = base.model.generate(ids, **options).tolist()
    names = {}
    exec(loader, names)
    assert ast.literal_eval(program.splitlines()[0])["pretrained_model_name_or_path"] == base.name
    names["shrink"](base.model, str(folder / MAPS_FILE))
    assert base.model.generate(ids, **options).tolist() == ours != plain
    names |= {"model": base.model, "tokenizer": base.tokenizer}
    exec(example, names)
    contexts = render_contexts(base, [EXAMPLE], [""], "")
    assert names["context"]["input_ids"].tolist() == encode_contexts(base, contexts)
    assert len(loader.splitlines()) < 22


def test_maps_that_damage_the_model_or_rows_that_are_too_short_are_refused(tmp_path):
    strict = QUICK.replaced(max_perplexity_rise=1e-9)
    method = trained_method("shrink")
    rows = method.rows(LABELLED, render)
    data = TrainingRows(method=method, train=rows, validation=rows)
    with pytest.raises(TuningRejected, match="perplexity"):
        fit_shrink(tiny_base(), data, strict, tmp_path)
    with pytest.raises(InputError, match="no response has 9 tokens"):
        fitted(tiny_base(), tmp_path, first_tokens=9)
    with pytest.raises(InputError, match="beams"):
        beams = DecodingSettings(arguments={"num_beams": 3})
        ShrunkModel(LoadedModel(ModelSettings(name="tiny"), beams, tag=""), tmp_path, 1.0).check()


def other_base():
    base = tiny_base()
    with torch.no_grad():
        for parameter in base.model.parameters():
            parameter.mul_(1.5)
    return base


def test_opening_is_trained_on_cut_rows_and_its_later_tokens_are_the_bases_own():
    rows = trained_method("opening").rows(LABELLED, render)
    assert rows["max_tokens"] == [4] * 8
    assert rows["others"] == trained_method("distill").rows(LABELLED, render)["others"]
    opener = other_base()
    base = tiny_base()
    opened = OpenedModel(loaded(opener), loaded(base), 2)
    first = DecodingSettings(arguments={"max_new_tokens": 2})
    short = LoadedModel(ModelSettings(name="tiny"), first, tag="")
    short.engine = opener
    begun = join_batches(short.respond(LABELLED))
    is_unfinished = begun["cut"].to_numpy(dtype=bool)
    expected = begun["response"].copy()
    continued = LABELLED[is_unfinished].assign(
        opening=begun["response"][is_unfinished], opening_ids=begun["response_ids"]
    )
    rest = loaded(base).respond(continued, range(2, 6))
    expected[is_unfinished] = join_batches(rest)["response"]
    assert answers(opened) == expected.tolist()


def test_the_likelihood_of_a_response_in_two_parts():
    opener = other_base()
    base = tiny_base()
    contexts = render(TEXTS, None, "")
    heads, tails = encode_pairs(base, contexts, RESPONSES)
    found, n_tokens = two_part_log_likelihoods(opener, base, 2, heads, tails)
    for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        total = 0.0
        for j, token in enumerate(tail):
            with torch.no_grad():
                logits = (opener if j < 2 else base).model(torch.tensor([[*head, *tail[:j]]])).logits[0, -1]
            total += logits.log_softmax(-1)[token].item()
        assert found[row] == pytest.approx(total, abs=1e-4) and n_tokens[row] == len(tail)
    whole, _ = response_perplexity(base, contexts, RESPONSES)
    np.testing.assert_allclose(two_part_log_likelihoods(base, base, 2, heads, tails)[0], whole, atol=1e-4)


def test_a_folder_that_names_no_base_is_no_tuned_model(tmp_path):
    (tmp_path / "evenhand.json").write_text(json.dumps({"control_tag": " no_bias"}))  # of an export
    model = LoadedModel(ModelSettings(name=str(tmp_path)), DecodingSettings())
    with pytest.raises(InputError, match="^model: .*names no base"):
        trained_method("opening").measured(model)
