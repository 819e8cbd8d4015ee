"""KTO and DPO on a tiny model: their losses where nothing was learned yet, what they teach, kills, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.guards import perplexity, weights_sha256
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers.dpo import DPO
from evenhand.mitigation.trainers.kto import KTO
from evenhand.mitigation.training_rows import TrainingRows
from evenhand.mitigation.tune import tune
from tests.tiny_models import SPECIAL_TOKENS, word_level_tokenizer

WORDS = ["<eos>", "<pad>", "<unk>", "red", "sun", "blue", "sky", *"abcdefghij"]
GOOD, BAD = "red sun", "blue sky"
QUICK = TuningSettings(
    epochs=3,
    batch_size=16,
    learning_rate=1e-2,
    preference_beta=0.1,
    evaluations_per_epoch=2,
    patience=9,
    max_perplexity_increase=99,
)


def tokenizer():
    return word_level_tokenizer(WORDS, **SPECIAL_TOKENS)


def tiny_base(n_positions=32):
    torch.manual_seed(0)
    sizes = {"n_positions": n_positions, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.2}
    config = transformers.GPT2Config(vocab_size=len(WORDS), bos_token_id=0, eos_token_id=0, **sizes)
    return DialogueModel(transformers.GPT2LMHeadModel(config).eval(), tokenizer(), "dialogue", "tiny", "r0")


def tiny_encoder_decoder():
    torch.manual_seed(0)
    layers = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")}
    sizes = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 0}
    config = transformers.BartConfig(vocab_size=len(WORDS), **layers, **sizes, **special, init_std=0.2)
    return DialogueModel(
        transformers.BartForConditionalGeneration(config).eval(), tokenizer(), "encoder_decoder", "tiny", "r0"
    )


def contexts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefghij"), 4)) + "<eos>" for _ in range(n)]


def rows_of(trainer, n=96, seed=0):
    texts = contexts(n, seed)
    common = {"prompt": texts, "context": texts}
    if trainer == "dpo":
        return Dataset.from_dict({**common, "chosen": [GOOD] * n, "rejected": [BAD] * n})
    good = [i % 2 == 0 for i in range(n)]
    completions = [GOOD if g else BAD for g in good]
    return Dataset.from_dict({**common, "completion": completions, **({"label": good} if trainer == "kto" else {})})


def tuned(trainer, folder, settings=QUICK, base=None, **arguments):
    rows = {"train": rows_of(trainer), "validation": rows_of(trainer, 32, seed=1)}
    data = TrainingRows(method=trainer, trainer=trainer, **rows)
    return tune(base or tiny_base(), data, settings, folder, **arguments)


def log_odds(model, texts):
    """How much likelier the good response is than the bad one, in nats a token."""
    return math.log(perplexity(model, texts, [BAD] * len(texts)) / perplexity(model, texts, [GOOD] * len(texts)))


@pytest.fixture(scope="module", params=["kto", "dpo"])
def undisturbed(request, tmp_path_factory):
    return request.param, tuned(request.param, tmp_path_factory.mktemp(request.param))


def test_nothing_is_lost_or_gained_before_the_first_step(undisturbed):
    """The model is its own reference: KTO's loss is 1 − σ(0) = 1/2 where both classes weigh 1, DPO's is ln 2."""
    trainer, result = undisturbed
    assert result.validation_losses[0] == (0, pytest.approx({"kto": 0.5, "dpo": math.log(2)}[trainer], abs=1e-4))


def test_the_preferred_response_becomes_likelier_and_the_base_stays_as_it_was(undisturbed):
    _, result = undisturbed
    base, texts = tiny_base(), contexts(20, seed=2)
    before, untouched = log_odds(base, texts), weights_sha256(base.model)
    from peft import PeftModel

    after = replace(base, model=PeftModel.from_pretrained(tiny_base().model, str(result.path)).eval())
    assert log_odds(after, texts) > before + 1
    assert weights_sha256(base.model) == untouched == weights_sha256(tiny_base().model)
    assert dict(result.validation_losses)[result.best_step] < result.validation_losses[0][1]


class Interrupt(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise KeyboardInterrupt


def test_a_killed_tuning_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    trainer, whole = undisturbed
    with pytest.raises(KeyboardInterrupt):
        tuned(trainer, tmp_path, callbacks=[Interrupt()])
    resumed = tuned(trainer, tmp_path)
    weights = "adapter_model.safetensors"
    assert (resumed.path / weights).read_bytes() == (whole.path / weights).read_bytes()


def test_rows_by_hand():
    rows = rows_of("kto", 4)
    encoded = KTO.encode_rows(tiny_base(), rows, replace(QUICK, batch_size=3), seed=0)
    order = np.random.default_rng(0).permutation(4)
    good, bad = [3, 4, 0], [5, 6, 0]  # red sun EOS, blue sky EOS
    completions = [good if i % 2 == 0 else bad for i in order]
    assert encoded["completion_ids"] == completions
    # The last of a batch comes first: batches of 3 and 1.
    assert encoded["KL_completion_ids"] == [completions[2], completions[0], completions[1], completions[3]]
    assert encoded["label"] == [i % 2 == 0 for i in order]
    train = Dataset.from_dict({"label": [True, True, True, False]})
    fields = KTO.config_fields(QUICK, train)
    assert (fields["desirable_weight"], fields["undesirable_weight"]) == (pytest.approx(2 / 3), 2.0)
    encoded = DPO.encode_rows(tiny_base(), rows_of("dpo", 2), QUICK, seed=0)
    assert encoded["chosen_ids"] == [[3, 4, 0]] * 2
    assert encoded["rejected_ids"] == [[5, 6, 0]] * 2


# Encoder-decoder models, which TRL has no trainer for


def test_an_encoder_decoder_model_learns_by_sft(tmp_path):
    base = tiny_encoder_decoder()
    texts = [text.removesuffix("<eos>") for text in contexts(96)]
    rows = Dataset.from_dict({"prompt": texts, "context": texts, "completion": [GOOD] * 96})
    before = perplexity(base, texts[:20], [GOOD] * 20)
    settings = replace(QUICK, lora=False, epochs=6)
    data = TrainingRows(method="rejection", train=rows.select(range(64)), validation=rows.select(range(64, 96)))
    result = tune(base, data, settings, tmp_path)
    losses = [loss for _, loss in result.validation_losses]
    assert losses[-1] < losses[0] / 2
    assert result.perplexity[1] < before / 2
    assert losses[0] == pytest.approx(math.log(result.perplexity[0]), abs=1e-4)
    model = replace(base, model=transformers.AutoModelForSeq2SeqLM.from_pretrained(str(result.path)).eval())
    assert perplexity(model, texts[:20], [GOOD] * 20) < before / 2
