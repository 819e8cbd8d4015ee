"""Decoding, stripping and encoding an answer gives other tokens than the model wrote, so that its ids are kept."""

import math

import pytest
import torch
import transformers

from evenhand.evaluation.models.contexts import encode_contexts, encode_responses, render_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods
from evenhand.evaluation.models.loading import loaded_dialogue_model
from evenhand.mitigation.guards import perplexity
from evenhand.mitigation.trainers import IGNORE_INDEX, SFT
from evenhand.mitigation.training_rows import ReadDialogue, dialogue_of
from tests.tiny_tokenizers import KINDS, TEMPLATES, tiny_tokenizer

PROMPTS = ["I'm a mom.", "Hi", "Tell me about the rain"]


def random_model(tokenizer):
    torch.manual_seed(1)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 160, "initializer_range": 0.2}
    end = tokenizer.eos_token_id
    config = transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, **sizes)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_read_again_are_the_ids_written(kind, template):
    from datasets import Dataset

    tokenizer = tiny_tokenizer(kind, template)
    with loaded_dialogue_model(random_model(tokenizer), tokenizer) as model:
        contexts = render_contexts(model, PROMPTS, [""] * len(PROMPTS))
        heads = encode_contexts(model, contexts)
        found = {}
        for batch in generate_responses(model, contexts, [0] * len(contexts), {"max_new_tokens": 12}):
            found.update(batch)
        answers = [found[row] for row in range(len(contexts))]
        texts = [answer.text for answer in answers]
        ids = [answer.ids for answer in answers]
        is_cut = [answer.is_cut for answer in answers]
        for head, written, cut in zip(heads, ids, is_cut, strict=True):
            raw = model.model.generate(torch.tensor([head]), max_new_tokens=12, do_sample=False)[0].tolist()
            assert raw[len(head) :] == written and cut == (written[-1] != tokenizer.eos_token_id)
        assert encode_responses(model, contexts, texts, ids, is_cut) == ids
        columns = {"prompt": contexts, "completion": texts, "completion_ids": ids, "completion_cut": is_cut}
        rows = SFT.encode_rows(model, Dataset.from_dict(columns))
        whole = math.fsum(sums.sum() for _, sums, _ in response_log_likelihoods(model, contexts, texts, ids, is_cut))
        dialogue = ReadDialogue(contexts, texts, ids, is_cut)
        assert perplexity(model, dialogue) == pytest.approx(math.exp(-whole / sum(map(len, ids))), rel=1e-5)
        assert dialogue_of(Dataset.from_dict(columns), "prompt").written == ids
        for row, written, text in zip(rows, ids, texts, strict=True):
            trained = [label for label in row["labels"] if label != IGNORE_INDEX]
            assert trained == written[: len(trained)]
            if text.strip("\ufffd"):  # half a character, of a cut answer, is not trained
                assert tokenizer.decode(trained, skip_special_tokens=True).strip() == text.rstrip("\ufffd").strip()
        for rows, sums, n_tokens in response_log_likelihoods(model, contexts, texts, ids, is_cut):
            for row, total, n in zip(rows, sums, n_tokens, strict=True):
                logits = model.model(torch.tensor([heads[row] + ids[row]])).logits[0, len(heads[row]) - 1 : -1]
                by_hand = logits.double().log_softmax(-1)
                assert by_hand[0].argmax() == ids[row][0]  # greedy
                assert n == len(ids[row])
                assert total == pytest.approx(by_hand[torch.arange(n), ids[row]].sum().item(), abs=1e-3)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_another_source_is_encoded_as_the_rendered_chat(kind, template):
    tokenizer = tiny_tokenizer(kind, template)
    with loaded_dialogue_model(random_model(tokenizer), tokenizer) as model:
        contexts = render_contexts(model, PROMPTS, [""] * len(PROMPTS))
        heads = encode_contexts(model, contexts)
        for text in ("Hello you.", "It is so nice"):
            for prompt, head, ids in zip(
                PROMPTS, heads, encode_responses(model, contexts, [text] * len(contexts)), strict=True
            ):
                chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
                whole = tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False), add_special_tokens=False)
                assert whole[: len(head)] == head
                assert ids[-1] == tokenizer.eos_token_id
                assert whole[len(head) :][: len(ids) - 1] == ids[:-1]


def test_ids_of_another_tokenizer_and_of_an_edited_text_are_not_used():
    tokenizer = tiny_tokenizer("byte-level BPE", "colon")
    other = tiny_tokenizer("characters", "colon")
    with loaded_dialogue_model(random_model(tokenizer), tokenizer) as model:
        contexts = render_contexts(model, ["Hi"], [""])
        alone = encode_responses(model, contexts, ["Hello you."])
        assert encode_responses(model, contexts, ["Hello you."], [other.encode("Hello you.")]) == alone
        assert encode_responses(model, contexts, ["Hello you."], [tokenizer.encode("Hello me.")]) == alone
        own = tokenizer.encode("\nHello you.")
        assert encode_responses(model, contexts, ["Hello you."], [own]) == [own]


def test_ids_of_an_answer_that_was_shortened_are_used_only_if_a_stop_string_ended_it():
    """An end, or max_new_tokens, says that the whole answer is in the ids; without either, a stop string follows."""
    tokenizer = tiny_tokenizer("byte-level BPE", "colon")
    with loaded_dialogue_model(random_model(tokenizer), tokenizer) as model:
        contexts = render_contexts(model, ["Hi"], [""])
        own = tokenizer.encode("Hello you.\nA: Hi")
        ended = [*own, tokenizer.eos_token_id]
        anew = encode_responses(model, contexts, ["Hello you."])
        assert encode_responses(model, contexts, ["Hello you."], [own], [False]) == [own]
        assert encode_responses(model, contexts, ["Hello you."], [own], [True]) == [anew[0][:-1]]
        assert encode_responses(model, contexts, ["Hello you."], [ended], [False]) == anew
        assert encode_responses(model, contexts, ["Hello you.\nA: Hi"], [ended], [False]) == [ended]
