"""Translations by tiny models of the shapes of M2M-100, NLLB and Marian, and from a file."""

import json

import pytest
import sentencepiece
import torch
import transformers

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.translation import PAPER_DECODING, translate
from tests.tiny_models import SEQ2SEQ

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

TEXTS = ["I am a homemaker.", "I have friends who are orphans.", "I am a homemaker.", "I sing."]
SHORT = {**PAPER_DECODING, "max_new_tokens": 6}
SIZES = {name: size for name, size in SEQ2SEQ.items() if "token" not in name} | {"max_position_embeddings": 64}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A folder with a SentencePiece model (spm.model) and a vocabulary of its pieces (vocab.json)."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text.txt").write_text("\n".join([*TEXTS, "Soy ama de casa.", "Tengo amigas."] * 20), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "spm"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    pieces = [model.id_to_piece(index) for index in range(3, model.get_piece_size())]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, ">>spa<<", ">>fra<<"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    return folder


def save(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_dialogue_model(ModelSettings(name=str(folder), device="cpu"))


@pytest.fixture(scope="module")
def m2m(pieces, tmp_path_factory):
    tokenizer = transformers.M2M100Tokenizer(str(pieces / "vocab.json"), str(pieces / "spm.model"))
    size = max(tokenizer.lang_token_to_id.values()) + 1
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(vocab_size=size, **SIZES))
    return save(tmp_path_factory.mktemp("m2m"), model, tokenizer)


@pytest.fixture(scope="module")
def nllb(pieces, tmp_path_factory):
    tokenizer = transformers.NllbTokenizer(vocab=json.loads((pieces / "vocab.json").read_text()), merges=[])
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(vocab_size=len(tokenizer), **SIZES))
    return save(tmp_path_factory.mktemp("nllb"), model, tokenizer)


def marian(pieces, folder, languages):
    vocab = json.loads((pieces / "vocab.json").read_text())
    if not languages:
        vocab = {token: index for token, index in vocab.items() if not token.startswith(">>")}
    (pieces / "marian.json").write_text(json.dumps(vocab))
    spm = str(pieces / "spm.model")
    tokenizer = transformers.MarianTokenizer(source_spm=spm, target_spm=spm, vocab=str(pieces / "marian.json"))
    config = transformers.MarianConfig(
        vocab_size=len(vocab), pad_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=2, **SIZES
    )
    torch.manual_seed(0)
    return save(folder, transformers.MarianMTModel(config), tokenizer)


SPANISH = {"source": "eng_Latn", "target": "spa_Latn", "decoding": SHORT}


def record_calls(model, monkeypatch):
    """Return a list to which each call of `generate` appends its arguments and output."""
    calls, generate = [], model.model.generate

    def record(**arguments):
        calls.append((arguments, generate(**arguments)))
        return calls[-1][1]

    monkeypatch.setattr(model.model, "generate", record)
    return calls


def collect_texts(batches, n):
    texts = [None] * n
    for rows, batch in batches:
        for row, text in zip(rows, batch, strict=True):
            assert texts[row] is None
            texts[row] = text
    return texts


@pytest.mark.parametrize(("source", "target"), [("en", "es"), ("eng_Latn", "spa_Latn")])
def test_m2m_100_begins_in_the_target_language(m2m, monkeypatch, source, target):
    calls = record_calls(m2m, monkeypatch)
    translations = collect_texts(translate(m2m, TEXTS, source=source, target=target, decoding=SHORT), len(TEXTS))
    arguments, output = calls[0]
    spanish, english = (m2m.tokenizer.get_lang_id(code) for code in ("es", "en"))
    assert output[:, 1].eq(spanish).all()
    assert arguments["input_ids"][:, 0].eq(english).all()
    assert len(arguments["input_ids"]) == 3  # equal texts are translated once
    assert (arguments["num_beams"], arguments["do_sample"]) == (5, False)
    assert translations[0] == translations[2]
    assert not any("__" in text for text in translations)  # language tokens are removed


def test_nllb_begins_in_the_target_language(nllb, monkeypatch):
    calls = record_calls(nllb, monkeypatch)
    list(translate(nllb, TEXTS, source="eng_Latn", target="es", decoding=SHORT))
    arguments, output = calls[0]
    spanish, english = nllb.tokenizer.convert_tokens_to_ids(["spa_Latn", "eng_Latn"])
    assert output[:, 1].eq(spanish).all()
    assert arguments["input_ids"][:, 0].eq(english).all()
    # Table 4 of the paper writes cmn_Hans, NLLB zho_Hans.
    list(translate(nllb, TEXTS[:1], source="eng_Latn", target="cmn_Hans", decoding=SHORT))
    assert calls[-1][1][0, 1] == nllb.tokenizer.convert_tokens_to_ids("zho_Hans")


def test_marian_does_not_predict_padding(pieces, tmp_path):
    """The generation config forbids padding, without which the model predicts nothing else."""
    model = marian(pieces, tmp_path, languages=False).model
    padding = model.config.pad_token_id
    model.final_logits_bias[:, padding] = 100.0
    model.generation_config.bad_words_ids = [[padding], [5]]
    loaded = save(tmp_path, model, load_dialogue_model(str(tmp_path)).tokenizer)
    assert loaded.model.generation_config.bad_words_ids == [[padding]]  # the rest would be decoding
    translations = collect_texts(translate(loaded, TEXTS, **SPANISH), len(TEXTS))
    assert all(translations)
    loaded.model.generation_config.bad_words_ids = None
    again = collect_texts(translate(loaded, TEXTS, **SPANISH), len(TEXTS))
    assert not any(again)


def test_marian_of_several_targets_reads_the_target_first(pieces, tmp_path, monkeypatch):
    model = marian(pieces, tmp_path, languages=True)
    calls = record_calls(model, monkeypatch)
    list(translate(model, TEXTS, **SPANISH))
    assert calls[0][0]["input_ids"][:, 0].eq(model.tokenizer.convert_tokens_to_ids(">>spa<<")).all()
    with pytest.raises(InputError, match="^target: 'deu_Latn' .*fra, spa"):
        next(translate(model, TEXTS, source="eng_Latn", target="deu_Latn"))


def test_distinct_texts_are_translated_the_longest_first(m2m):
    arguments = {"source": "en", "target": "es", "decoding": SHORT, "batch_size": 1}
    batches = list(translate(m2m, TEXTS, **arguments))
    assert [rows for rows, _ in batches] == [[1], [0, 2], [3]]  # the longest first
    assert list(translate(m2m, TEXTS[2:], **arguments)) == [([0], batches[1][1][:1]), ([1], batches[2][1])]
    assert list(translate(m2m, [], **arguments)) == []
