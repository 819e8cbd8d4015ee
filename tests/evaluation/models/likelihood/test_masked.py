"""Masked scoring: the same numbers as a plain forward pass for each mask, at one encoder pass per mask."""

import math

import numpy as np
import pytest
import torch
import transformers

from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities, unmasked_log_probabilities
from evenhand.evaluation.models.loading import MaskedModel
from tests.tiny_models import word_level_tokenizer

CLS, PAD, SEP, MASK = 0, 1, 2, 3
WORDS = ["[CLS]", "[PAD]", "[SEP]", "[MASK]", "[UNK]", *"abcdefghijklmno"]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "pad_token_id": PAD,
    "initializer_range": 0.5,  # wide, so that probabilities differ
}
SPECIAL = {"bos_token_id": CLS, "eos_token_id": SEP, "cls_token_id": CLS, "sep_token_id": SEP}
CONFIGS = {
    "Bert": {},
    "Roberta": {},
    "DistilBert": {},
    "ModernBert": {"global_attn_every_n_layers": 2, "local_attention": 4, **SPECIAL},
    "DebertaV2": {},
    "MPNet": {},
}
SENTENCES = [[CLS, 5, 6, 7, 8, SEP], [CLS, 9, 9, 5, SEP], [CLS, 11, 12, 13, 14, SEP], [CLS, 10, SEP]]
POSITIONS = [[1, 2, 4], [1, 3], [4], []]
IS_SPECIAL = [[index in (0, len(ids) - 1) for index in range(len(ids))] for ids in SENTENCES]  # special tokens


@pytest.fixture(scope="module")
def tokenizer():
    return word_level_tokenizer(WORDS, "[CLS] $A [SEP]")


def build(architecture, tokenizer, dtype=torch.float32, **changes):
    torch.manual_seed(0)
    settings = {**SIZES, **CONFIGS[architecture], **changes}
    if architecture == "DistilBert":
        for name, renamed in (
            ("hidden_size", "dim"),
            ("num_hidden_layers", "n_layers"),
            ("intermediate_size", "hidden_dim"),
        ):
            settings[renamed] = settings.pop(name)
        settings["n_heads"] = settings.pop("num_attention_heads")
    config = getattr(transformers, f"{architecture}Config")(**settings)
    model = getattr(transformers, f"{architecture}ForMaskedLM")(config).eval().to(dtype)
    return MaskedModel(model, tokenizer, "a tiny model", "")


def plain(masked_model, sentences, positions):
    """Return log p by one pass for each mask."""
    log_p, correct = [], []
    for ids, masked in zip(sentences, positions, strict=True):
        for position in masked:
            row = torch.tensor([ids])
            row[0, position] = MASK
            with torch.no_grad():
                logits = masked_model.model(input_ids=row).logits[0, position].float()
            log_p.append(float(logits.log_softmax(-1)[ids[position]]))
            correct.append(int(logits.argmax()) == ids[position])
    return np.array(log_p), np.array(correct)


def collect_rows(batches, n):
    """Return the results in the order of the rows, and check that each row is yielded once."""
    values, seen = None, np.zeros(n, dtype=int)
    for rows, *results in batches:
        values = values or [np.full(n, np.nan).astype(object) for _ in results]
        for whole, part in zip(values, results, strict=True):
            whole[rows] = part
        seen[rows] += 1
    assert (seen == 1).all()
    return [whole.astype(type(whole[0])) for whole in values]


@pytest.mark.parametrize("architecture", CONFIGS)
def test_equals_a_plain_pass_for_each_mask_with_the_head_at_one_position(architecture, tokenizer):
    masked_model = build(architecture, tokenizer)
    shapes = []
    head = masked_model.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape)))
    log_p, correct = collect_rows(masked_log_probabilities(masked_model, SENTENCES, POSITIONS), 6)
    handle.remove()
    assert shapes == [(4, 1, len(WORDS)), (2, 1, len(WORDS))]
    expected, expected_correct = plain(masked_model, SENTENCES, POSITIONS)
    assert log_p.dtype == np.float64 and expected.std() > 0.5
    np.testing.assert_allclose(log_p, expected, atol=1e-5)
    assert (correct == expected_correct).all()


def test_prescribed_probabilities(tokenizer):
    """With an encoder that returns 0, p is the softmax of the head's bias."""
    masked_model = build("Bert", tokenizer)
    model = masked_model.model
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        model.cls.predictions.bias.fill_(-math.inf)
        for word, p in ((5, 0.5), (6, 0.25), (7, 0.25)):
            model.cls.predictions.bias[word] = math.log(p)
    log_p, correct = collect_rows(masked_log_probabilities(masked_model, [[CLS, 5, 6, 8, SEP]], [[1, 2, 3]]), 3)
    np.testing.assert_allclose(log_p, [math.log(0.5), math.log(0.25), -math.inf])
    assert correct.tolist() == [True, False, False]


class GivenAway(transformers.BertForMaskedLM):
    """Pieces 5, 6, 7 of a word at places 2 to 4 are certain beside each other; else p is 0.5 after 8, 0.1 after 9."""

    def forward(self, input_ids, **_):
        shows_piece = torch.isin(input_ids, torch.tensor([5, 6, 7])).any(1)
        p = torch.where(shows_piece, 1.0, torch.where(input_ids[:, 1] == 8, 0.5, 0.1))
        probabilities = torch.zeros(*input_ids.shape, len(WORDS))
        probabilities[..., 4] = (1 - p)[:, None]
        for place in (2, 3, 4):
            probabilities[:, place, place + 3] = p
        return transformers.modeling_outputs.MaskedLMOutput(logits=probabilities.log())


def test_whole_words_show_a_planted_preference_that_their_pieces_hide(tokenizer):
    model = GivenAway(transformers.BertConfig(**SIZES)).eval()
    sentences, places = [[CLS, 8, 5, 6, 7, SEP], [CLS, 9, 5, 6, 7, SEP]], [[2, 3, 4]] * 2
    planted = MaskedModel(model, tokenizer, "planted", "")
    alone, _ = collect_rows(masked_log_probabilities(planted, sentences, places), 6)
    assert alone.tolist() == [0.0] * 6
    words = [[None, 0, 1, 1, 1, None]] * 2
    whole, _ = collect_rows(masked_log_probabilities(planted, sentences, places, words), 6)
    np.testing.assert_allclose(whole, [math.log(0.5)] * 3 + [math.log(0.1)] * 3, rtol=1e-6)
    single = [[None, 0, 1, 2, 3, None]] * 2  # words of one piece each
    assert collect_rows(masked_log_probabilities(planted, sentences, places, single), 6)[0].tolist() == [0.0] * 6


@pytest.mark.parametrize("architecture", ["Bert", "Roberta", "ModernBert", "DistilBert"])
def test_aul_and_aula_by_their_definition(architecture, tokenizer):
    masked_model = build(architecture, tokenizer)
    aul, aula = collect_rows(unmasked_log_probabilities(masked_model, SENTENCES, IS_SPECIAL), 4)
    reference = build(architecture, tokenizer, attn_implementation="eager").model
    for row, ids in enumerate(SENTENCES):
        with torch.no_grad():
            output = reference(input_ids=torch.tensor([ids]), output_attentions=True)
        plain_sum = weighted_sum = 0.0
        positions = range(1, len(ids) - 1)
        for position in positions:
            log_p = float(output.logits[0, position].log_softmax(-1)[ids[position]])
            # layers of (1, heads, queries, keys): the attention from all queries
            received = np.mean([layer[0, :, :, position].numpy().mean() for layer in output.attentions])
            plain_sum, weighted_sum = plain_sum + log_p, weighted_sum + log_p * received
        assert aul[row] == pytest.approx(plain_sum / len(positions), abs=1e-5)
        assert aula[row] == pytest.approx(weighted_sum / len(positions), abs=1e-5)
