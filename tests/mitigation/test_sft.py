import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft.utils import ModulesToSaveWrapper
from transformers import AutoModelForSeq2SeqLM, GPT2Config, GPT2LMHeadModel, XLMConfig, XLMWithLMHeadModel
from trl import SFTConfig, SFTTrainer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.loading import DialogueModel, loaded_dialogue_model
from evenhand.mitigation.guards import check_next_token_loss, perplexity
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.trainers import SFT, EncoderDecoderSFT, compute_in_float32, trainer_class
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_batches import IGNORE_INDEX, LengthGroupedSampler, collate_causal
from evenhand.mitigation.training_rows import ReadDialogue, TrainingRows
from tests.mitigation.tiny_dialogue import QUICK, tiny_encoder_decoder
from tests.tiny_models import SPECIAL_TOKENS, word_level_tokenizer
from tests.tiny_tokenizers import tiny_tokenizer

WORDS = ["<eos>", "<pad>", "<unk>", "bias", "no_bias", "I", "am", "tall", "wow", "so", "nice"]


def dialogue_model(tokenizer):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return DialogueModel(GPT2LMHeadModel(config).eval(), tokenizer, "dialogue", "tiny", "r0")


@pytest.fixture(scope="module")
def base():
    return dialogue_model(word_level_tokenizer(WORDS, **SPECIAL_TOKENS))


ROWS = Dataset.from_dict(
    {
        "prompt": ["I am tall no_bias<eos>", "I am bias<eos>", "so no_bias<eos>"],
        "completion": ["wow", "so nice so", "nice"],
    }
)


QUIET = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "seed": 0}


def trainer(base, rows, tmp_path):
    config = SFTConfig(str(tmp_path), **SFT.config_fields, **QUIET)
    return SFT(base.model, args=config, train_dataset=rows, processing_class=base.tokenizer)


def trainer_of_trl(base, rows, tmp_path):
    config = SFTConfig(str(tmp_path), max_length=None, **QUIET)
    return SFTTrainer(base.model, config, train_dataset=rows, processing_class=base.tokenizer)


def test_responses_are_trained_by_trl_and_encoder_decoder_models_by_transformers():
    assert issubclass(SFT, SFTTrainer)
    assert issubclass(trainer_class("distill"), SFTTrainer)
    assert trainer_class("sft") is SFT
    assert trainer_class("sft", is_encoder_decoder=True) is EncoderDecoderSFT
    assert not issubclass(EncoderDecoderSFT, SFTTrainer)


def test_rows_are_encoded_as_trl_encodes_them(base, tmp_path):
    rows = SFT.encode_rows(base, ROWS)
    assert rows["input_ids"] == [
        [5, 6, 7, 4, 0, 8, 0],  # I am tall no_bias EOS | wow EOS
        [5, 6, 3, 0, 9, 10, 9, 0],
        [9, 4, 0, 10, 0],
    ]
    assert rows["labels"] == [
        [-100, -100, -100, -100, -100, 8, 0],
        [-100, -100, -100, -100, 9, 10, 9, 0],
        [-100, -100, -100, 10, 0],
    ]
    theirs = trainer_of_trl(base, ROWS, tmp_path).train_dataset
    ours = SFT.encode_rows(base, ROWS)
    assert theirs["input_ids"] == ours["input_ids"]
    assert theirs["labels"] == ours["labels"]


def test_a_batch_ends_on_the_right_and_keeps_the_labels_of_the_longest_response(base):
    rows = list(SFT.encode_rows(base, ROWS))
    batch = collate_causal(rows, pad_token_id=1, with_positions=True)
    assert batch["input_ids"].tolist() == [
        [1, 5, 6, 7, 4, 0, 8, 0],
        [5, 6, 3, 0, 9, 10, 9, 0],
        [1, 1, 1, 9, 4, 0, 10, 0],
    ]
    assert batch["attention_mask"].tolist() == [[0] + [1] * 7, [1] * 8, [0] * 3 + [1] * 5]
    assert batch["position_ids"].tolist() == [[0, 0, 1, 2, 3, 4, 5, 6], list(range(8)), [0, 0, 0, 0, 1, 2, 3, 4]]
    # The longest response has 4 labels (so nice so EOS); the position before the first of them makes 5.
    assert batch["logits_to_keep"] == 5
    assert batch["labels"].tolist() == [[-100, -100, -100, 8, 0], [-100, 9, 10, 9, 0], [-100, -100, -100, 10, 0]]


def test_the_loss_is_the_mean_over_response_tokens_and_that_of_trl(base, tmp_path):
    rows = SFT.encode_rows(base, ROWS)
    log_likelihoods = []
    for ids, labels in zip(rows["input_ids"], rows["labels"], strict=True):
        log_p = base.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        log_likelihoods += [log_p[i - 1, label].item() for i, label in enumerate(labels) if label != IGNORE_INDEX]
    by_hand = -np.mean(log_likelihoods)
    assert len(log_likelihoods) == 2 + 4 + 2

    ours = trainer(base, rows, tmp_path)
    batch = collate_causal(list(rows), pad_token_id=1, with_positions=True)
    assert ours.compute_loss(base.model, batch).item() == pytest.approx(by_hand, abs=1e-5)
    assert ours.compute_loss(base.model, batch, num_items_in_batch=16).item() == pytest.approx(by_hand / 2, abs=1e-5)

    base_of_theirs = dialogue_model(base.tokenizer)
    theirs = trainer_of_trl(base_of_theirs, ROWS, tmp_path)
    batch = theirs.data_collator([dict(row) for row in theirs.train_dataset])
    assert theirs.compute_loss(base_of_theirs.model, batch).item() == pytest.approx(by_hand, abs=1e-5)


def test_an_epoch_takes_every_row_once_in_batches_of_like_length_and_the_next_one_another_order():
    lengths = np.random.default_rng(0).integers(5, 40, 1003)
    sampler = LengthGroupedSampler(lengths, batch_size=10, seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(1003))
    assert list(sampler) == first
    spreads = [np.ptp(lengths[first[start : start + 10]]) for start in range(0, 1000, 10)]
    assert np.mean(spreads) < 3  # 35 lengths over two pools of 50 batches: mostly one or two lengths to a batch
    means = [lengths[first[start : start + 10]].mean() for start in range(0, 1000, 10)]
    assert 30 < sum(earlier < later for earlier, later in pairwise(means)) < 70  # batches are not sorted
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    resumed = LengthGroupedSampler(lengths, batch_size=10, seed=1)
    resumed.set_epoch(1)
    assert list(resumed) == second
    assert list(LengthGroupedSampler(lengths, batch_size=10, seed=2)) != first


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # Neither tag is in the vocabulary, so both are <unk>.
        (Dataset.from_dict({"prompt": ["I FAIR", "I UNFAIR"], "completion": ["wow", "so"]}), "^model: .* same tokens"),
        (Dataset.from_dict({"prompt": ["I am " * 32], "completion": ["wow"]}), "66 tokens, .* tiny has 64"),
    ],
)
def test_rows_that_cannot_be_used_are_one_error(base, rows, message):
    with pytest.raises(InputError, match=message):
        SFT.encode_rows(base, rows)


def test_the_positions_of_a_model_that_reads_images_are_those_of_its_text(base):
    """Its config has the config of its text inside, and no number of positions of its own."""
    outer = SimpleNamespace(get_text_config=lambda **_: base.model.config, is_encoder_decoder=False)
    images = replace(base, model=SimpleNamespace(config=outer, generation_config=base.model.generation_config))
    with pytest.raises(InputError, match="66 tokens, .* tiny has 64"):
        SFT.encode_rows(images, Dataset.from_dict({"prompt": ["I am " * 32], "completion": ["wow"]}))


def test_a_cut_response_is_trained_without_an_end(base):
    rows = {"prompt": ["so<eos>"] * 3, "completion": ["so nice so", "so nice so", "so"]}
    rows["completion_cut"] = [False, True, True]
    labels = SFT.encode_rows(base, Dataset.from_dict(rows))["labels"]
    assert [[label for label in row if label != IGNORE_INDEX] for row in labels] == [[9, 10, 9, 0], [9, 10, 9], [9]]


@pytest.mark.parametrize("ids_are_known", [True, False])
@pytest.mark.parametrize("whole", ["你好！今天天气很好", "你好！ 今天天气很好我们可以去公园散步"])
def test_half_a_character_is_not_trained(whole, ids_are_known):
    tokenizer = tiny_tokenizer("byte-level BPE", "line")
    with loaded_dialogue_model(dialogue_model(tokenizer).model, tokenizer) as model:
        ids = tokenizer.encode(whole)[:-1]  # max_new_tokens ended the response within a character of three bytes
        rows = {"prompt": ["<bot>\n"], "completion": [tokenizer.decode(ids)], "completion_cut": [True]}
        if ids_are_known:
            rows["completion_ids"] = [ids]
        (labels,) = SFT.encode_rows(model, Dataset.from_dict(rows))["labels"]
        trained = [label for label in labels if label != IGNORE_INDEX]
        assert trained == ids[:-2] and tokenizer.decode(trained) == whole[:-1]


def test_an_encoder_decoder_model_learns(tmp_path):
    base, words = tiny_encoder_decoder(), np.random.default_rng(0).choice(list("abcdefghij"), (96, 4))
    texts = [" ".join(row) for row in words]
    rows = Dataset.from_dict({"prompt": texts, "context": texts, "completion": ["red sun"] * 96})
    dialogue = ReadDialogue(contexts=texts[:20], responses=["red sun"] * 20)
    before = perplexity(base, dialogue)
    data = TrainingRows(
        method=trained_method("rejection"), train=rows.select(range(64)), validation=rows.select(range(64, 96))
    )
    result = tune(base, data, QUICK.replaced(lora=False, epochs=6), tmp_path)
    losses = [loss for _, loss in result.validation_losses]
    assert losses[-1] < losses[0] / 2
    assert result.perplexity[1] < before / 2
    assert losses[0] == pytest.approx(math.log(result.perplexity[0]), abs=1e-4)
    model = replace(base, model=AutoModelForSeq2SeqLM.from_pretrained(str(result.path)).eval())
    assert perplexity(model, dialogue) < before / 2


def test_whole_modules_are_trained_in_float32_in_a_network_of_another_precision():
    wrapper = ModulesToSaveWrapper(torch.nn.Linear(2, 1, bias=False).bfloat16(), "default")
    (copied,) = wrapper.modules_to_save.values()
    copied.weight.data = torch.tensor([[1 + 2.0**-10, -1.0]])  # 1 in bfloat16
    compute_in_float32(wrapper)
    output = wrapper(torch.ones(1, 2, dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16 and output.item() == 2.0**-10


def test_a_model_whose_loss_is_of_the_token_that_it_reads_is_refused(base, tmp_path):
    config = XLMConfig(vocab_size=len(WORDS), emb_dim=16, n_layers=1, n_heads=2, causal=True, pad_index=1)
    reads = DialogueModel(XLMWithLMHeadModel(config).eval(), base.tokenizer, "dialogue", "xlm", "r0")
    ids = torch.arange(4)[None]
    with torch.no_grad():
        output = reads.model(input_ids=ids, labels=ids)
    own = torch.nn.functional.cross_entropy(output.logits[0], ids[0])
    assert output.loss == pytest.approx(own)  # of tokens 0 to 3 at their own places
    rows = TrainingRows(method=trained_method("exchange"), train=ROWS, validation=ROWS)
    with pytest.raises(InputError, match="the loss of xlm in transformers is of the token that it reads"):
        tune(reads, rows, QUICK, tmp_path)
    check_next_token_loss(base)
