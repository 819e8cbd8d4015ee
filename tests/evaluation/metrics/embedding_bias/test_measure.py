"""Embedding gaps from references to scores and page, on references small enough to check by eye."""

import re

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.embedding_bias import EmbeddingBias, Settings
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import find_score
from tests.family_runs import measure_tests
from tests.gendered_references import ROWS, written_references
from tests.report_pages import measured


def sentence_encoder(folder):
    torch.manual_seed(0)
    words = sorted({word for row in ROWS for text in (row[4], row[7]) for word in text.lower().split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(**sizes, vocab_size=len(vocabulary))).save_pretrained(folder)
    BertTokenizer(vocab={word: n for n, word in enumerate(vocabulary)}).save_pretrained(folder)
    return str(folder)


def test_embeddings_of_another_encoder_are_read_from_files(tmp_path):
    """Planted vectors: Spanish masculine sentences are English ones, feminine ones are at right angles to them."""
    folder = tmp_path / "vectors"
    references = ReferenceSettings(name=written_references(tmp_path), languages=["spa"], min_masculine_references=0)
    config = FamilyConfig(model=ModelSettings(name="LASER"), references=references, settings=Settings(vectors=folder))
    with pytest.raises(InputError, match=r"2 of 2 files \(eng_Latn.npy, …\); embed .*sources"):
        EmbeddingBias().inputs(config)
    spanish = (folder / "sources" / "spa_Latn.txt").read_text().splitlines()
    np.save(folder / "eng_Latn.npy", np.array([[2.0, 0.0]] * 2, np.float32))
    np.save(folder / "spa_Latn.npy", np.array([[0.0, 1.0] if "las " in text else [3.0, 0.0] for text in spanish]))
    run = measure_tests(tmp_path / "run", "embedding_bias", config)
    gap = find_score(run.scores, "embedding_gap", lang="spa_Latn")
    assert (gap.value, gap.n) == (1.0, 2) and "model" not in gap.signature
    assert set(gap.signature["vectors"]["files"]) == {"eng_Latn.npy", "spa_Latn.npy"}
    assert "/vectors · " in EmbeddingBias().page(run).subtitle
    np.save(folder / "spa_Latn.npy", np.ones((3, 2)))
    with pytest.raises(InputError, match=r"^vectors: .*spa_Latn.npy .*\(3, 2\).*\(4, h\)"):
        EmbeddingBias().inputs(config)
    for wrong in (np.ones((4, 3)), np.full((4, 2), "x"), np.ones((4, 2), complex)):
        np.save(folder / "spa_Latn.npy", wrong)
        with pytest.raises(InputError, match="^vectors: "):
            EmbeddingBias().inputs(config)
    np.savez(tmp_path / "two.npz", np.ones((4, 2)))
    for content in (b"", (tmp_path / "two.npz").read_bytes()):
        (folder / "spa_Latn.npy").write_bytes(content)
        with pytest.raises(InputError, match="^vectors: "):
            EmbeddingBias().inputs(config)


def test_embedding_gaps_by_language(tmp_path, browser):
    model = ModelSettings(name=sentence_encoder(tmp_path / "encoder"))
    references = ReferenceSettings(name=written_references(tmp_path), min_masculine_references=0)
    config = FamilyConfig(model=model, references=references, settings=Settings())
    run = measure_tests(tmp_path / "run", "embedding_bias", config)
    table = run.table("cosines")
    spanish = table[table["lang"] == "spa_Latn"].pivot(index="sentence_id", columns="gender", values="cosine")
    gap = find_score(run.scores, "embedding_gap", lang="spa_Latn")
    assert gap.value == pytest.approx((spanish["masculine"] - spanish["feminine"]).mean(), abs=1e-6) and gap.n == 2
    assert find_score(run.scores, "embedding_gap", lang="tha_Thai").reason
    assert gap.signature["model"]["texts_truncated"] == 0
    assert gap.signature["model"]["revision"] == EmbeddingBias().inputs(config)["model"]
    page = EmbeddingBias().page(run)
    text = page_html(page)
    assert "Spanish, masculine" in text and "Thai" in text and "nan" not in text and re.search(r"\b1\b", page.verdict)
    assert browser.faults(text) == []
    undefined = [score for score in run.scores if score.group.get("lang") == "tha_Thai"]
    page = EmbeddingBias().page(measured(undefined, {"cosines": table}, config))
    assert page.headline_value == "–" and "undefined" in page.verdict
