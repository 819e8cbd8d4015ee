"""Generation on tiny random models of several architectures."""

from collections import Counter

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.base import prompt_seed
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import ResponseNGramBlock, RowNoise, generate_responses, sample_tokens
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.padding import ignores_padding, shares_prefixes
from tests.tiny_models import EOS, PAD, WORDS, tiny

ARCHITECTURES = ("gpt2", "llama", "sliding", "bart", "blenderbot")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny("gpt2")


def random_contexts(model, n=30, seed=0):
    """Return contexts of 1 to 9 words, many with a common prefix, some equal."""
    rng = np.random.default_rng(seed)
    prompts = [" ".join(rng.choice(list("abc"), size=rng.integers(1, 10))) for _ in range(n)]
    personas = ["x y\nz" if rng.random() < 0.3 else "" for _ in range(n)]
    return render_contexts(model, [f"{prompt} " for prompt in prompts], personas)


def generate_in_order(model, contexts, seeds, arguments, **options):
    responses = {}
    for batch in generate_responses(model, contexts, seeds, arguments, **options):
        for row, response in batch.items():
            assert row not in responses
            responses[row] = response.text
    return [responses[row] for row in range(len(contexts))]


def test_seeds_and_random_numbers_are_stable():
    # BLAKE2b-64 of "7:p1", computed with the b2sum command: printf %s 7:p1 | b2sum -l 64
    assert prompt_seed("p1", 7) == 0xB8DAADEA3A34867A
    assert len({prompt_seed(f"p{i}", seed) for i in range(100) for seed in range(10)}) == 1000
    random = RowNoise([prompt_seed(str(i), 0) for i in range(20_000)])
    rows = torch.stack([random.next(4) for _ in range(3)], 1).numpy()
    assert rows.min() > 0
    np.testing.assert_allclose(rows.mean(0), 1, atol=4 * np.sqrt(1 / 20_000))
    assert (rows[7, 2] == RowNoise([prompt_seed("7", 0)], first=2).next(4).numpy()).all()


def test_a_response_goes_on_as_it_would_have_without_an_interruption(model):
    if model.kind == "encoder_decoder":
        pytest.skip("an opening needs a causal model")
    contexts = random_contexts(model)
    seeds = [prompt_seed(str(row), 1) for row in range(len(contexts))]
    whole = generate_in_order(model, contexts, seeds, decoding_arguments("sample", {"max_new_tokens": 9}))
    begun = generate_in_order(model, contexts, seeds, decoding_arguments("sample", {"max_new_tokens": 4}))
    openings = [model.tokenizer.encode(text, add_special_tokens=False) for text in begun]
    rest = {"openings": openings, "first": 4}
    continued = generate_in_order(model, contexts, seeds, decoding_arguments("sample", {"max_new_tokens": 5}), **rest)
    is_cut = [len(text.split()) == 4 for text in begun]
    assert sum(is_cut) > len(contexts) / 4
    assert [text for text, cut in zip(continued, is_cut, strict=True) if cut] == [
        text for text, cut in zip(whole, is_cut, strict=True) if cut
    ]


def test_responses_depend_on_neither_batch_size_nor_order(model):
    contexts = random_contexts(model)
    seeds = [prompt_seed(str(row), 1) for row in range(len(contexts))]
    arguments = decoding_arguments("sample", {"max_new_tokens": 8})
    one = generate_in_order(model, contexts, seeds, arguments, batch_size=1)
    assert one == generate_in_order(model, contexts, seeds, arguments, batch_size=64)
    order = np.random.default_rng(0).permutation(len(contexts))
    shuffled = generate_in_order(
        model, [contexts[i] for i in order], [seeds[i] for i in order], arguments, batch_size=7
    )
    assert shuffled == [one[i] for i in order]
    assert len(set(one)) > 10  # the responses differ
    assert one != generate_in_order(model, contexts, [seed + 1 for seed in seeds], arguments, batch_size=64)


def generate_one(model, context, **arguments):
    ids = torch.tensor(encode_contexts(model, [context]))
    output = model.model.generate(ids, attention_mask=torch.ones_like(ids), **arguments)[0]
    start = 0 if model.kind == "encoder_decoder" else ids.shape[1]
    return model.tokenizer.decode(output[start:], skip_special_tokens=True).strip()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"repetition_penalty": 1.3, "min_new_tokens": 3},
        {"suppress_tokens": [3, 4]},
        {"num_beams": 3, "min_new_tokens": 4},
    ],
    ids=["plain", "own_tokens", "scores", "beams"],
)
def test_greedy_decoding_and_beam_search_equal_generate(model, arguments):
    contexts, arguments = random_contexts(model, 12), {"do_sample": False, "max_new_tokens": 10, **arguments}
    responses = generate_in_order(model, contexts, [0] * 12, decoding_arguments("sample", arguments))
    assert responses == [generate_one(model, context, **arguments) for context in contexts]


@pytest.mark.parametrize("arguments", [{}, {"temperature": 0.5, "top_k": 6, "top_p": 0.9}], ids=["pure", "shaped"])
def test_sampling_follows_the_models_probabilities(model, arguments):
    """Compare the frequencies of responses of two tokens with the products of exact next-token probabilities."""
    n = 2000
    context = render_contexts(model, ["a b"], [""])[0].replace("<eos>", " <eos>")
    chosen = decoding_arguments("sample", {"max_new_tokens": 2, **arguments})
    texts = generate_in_order(model, [context] * n, [prompt_seed(str(i), 3) for i in range(n)], chosen, batch_size=500)
    expected = exact_distribution(model, context, chosen)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    counts = Counter(texts)
    assert set(counts) <= set(expected)
    common = {text: p for text, p in expected.items() if n * p >= 5}
    rest = 1 - sum(common.values())
    chi2 = sum((counts[text] - n * p) ** 2 / (n * p) for text, p in common.items())
    chi2 += (n - sum(counts[text] for text in common) - n * rest) ** 2 / (n * rest) if n * rest >= 5 else 0
    # The mean of chi² with k cells is about k, its variance 2k: 4 standard deviations.
    assert chi2 < len(common) + 4 * np.sqrt(2 * len(common))


def exact_distribution(model, context, chosen):
    """Return the probability of each response of at most two tokens, by one forward pass per prefix."""
    ids = torch.tensor(encode_contexts(model, [context]))

    def next_probabilities(response):
        with torch.no_grad():
            if model.kind == "encoder_decoder":
                start = torch.tensor([[PAD, *response]])
                logits = model.model(input_ids=ids, decoder_input_ids=start).logits[0, -1]
            else:
                whole = torch.cat([ids, torch.tensor([response], dtype=torch.long)], 1)
                logits = model.model(input_ids=whole).logits[0, -1]
        probabilities = (logits.double() / chosen["temperature"]).softmax(0)
        order = probabilities.argsort(descending=True)
        if chosen["top_k"]:
            probabilities[order[chosen["top_k"] :]] = 0
            probabilities /= probabilities.sum()
        before = probabilities[order].cumsum(0) - probabilities[order]
        probabilities[order[before >= chosen["top_p"]]] = 0
        return probabilities / probabilities.sum()

    probability = Counter()
    first = next_probabilities([])
    for token, p in enumerate(first.tolist()):
        if p == 0:
            continue
        if token == EOS:
            probability[""] += p
            continue
        for second, q in enumerate(next_probabilities([token]).tolist()):
            if q:
                words = [WORDS[word] for word in (token, second) if word not in (EOS, PAD, 2)]
                probability[" ".join(words)] += p * q
    return probability


def test_n_grams_of_the_response_are_blocked_and_n_grams_of_the_context_are_not(gpt2):
    block = ResponseNGramBlock(2, start=3)
    scores = torch.zeros(1, len(WORDS))
    # The context has the pair (3, 4); the response 5 6 7 5 has (5, 6): after the last 5, 6 is forbidden and 4 is not.
    blocked = block(torch.tensor([[3, 4, 3, 5, 6, 7, 5]]), scores.clone())
    assert torch.where(blocked[0] == -torch.inf)[0].tolist() == [6]
    blocked = block(torch.tensor([[3, 4, 5, 6, 3]]), scores.clone())
    assert not torch.isinf(blocked).any()
    words_only = decoding_arguments("paper", {"num_beams": 2, "max_new_tokens": 40, "suppress_tokens": [PAD, 2]})
    text = generate_in_order(gpt2, ["a b a b <eos>"], [0], words_only)[0].split()
    grams = list(zip(text, text[1:], text[2:], strict=False))
    assert len(text) > 10 and len(set(grams)) == len(grams)


def test_stop_strings_end_a_response(gpt2):
    # The library's criterion needs a byte-level tokenizer; here, each letter is a token.
    letters = Tokenizer(models.BPE({word: index for index, word in enumerate(WORDS)}, [], unk_token="<unk>"))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>", padding_side="left"
    )
    model = DialogueModel(gpt2.model, tokenizer, "dialogue", "tiny", "0")
    arguments = decoding_arguments(
        "sample", {"max_new_tokens": 30, "stop_strings": ["a"], "suppress_tokens": [EOS, PAD, 2]}
    )
    stopped = 0
    for batch in generate_responses(model, ["b<eos>"] * 20, list(range(20)), arguments):
        for response in batch.values():
            assert "a" not in response.text  # as from a server
            assert response.is_cut == (len(response.ids) == 30 and not tokenizer.decode(response.ids).endswith("a"))
            if not response.is_cut:
                stopped += 1
                assert tokenizer.decode(response.ids) == f"{response.text}a"  # without the padding of the batch
    assert stopped > 5


def test_tokens_are_drawn_by_probability():
    scores = torch.tensor([0.25, 0.0, 0.0, 0.75, 0.0]).log()
    tokens = sample_tokens(scores.expand(20_000, 5), RowNoise(range(20_000)))
    assert set(tokens.tolist()) == {0, 3}
    assert (tokens == 0).float().mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 20_000))
    # 600 tokens are two whole blocks and a shorter one.
    probabilities = torch.zeros(600)
    probabilities[[3, 255, 256, 599]] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    counts = sample_tokens(probabilities.log().expand(20_000, 600), RowNoise(range(20_000))).bincount(minlength=600)
    np.testing.assert_allclose(counts / 20_000, probabilities, atol=4 * np.sqrt(0.25 / 20_000))


def test_two_models_draw_the_same_token_as_often_as_the_gumbel_max_trick_says():
    """The probability that both models draw token i is 1 / Σ_j max(p_j / p_i, q_j / q_i)."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    tokens = [sample_tokens(it.log().expand(20_000, 3), RowNoise(range(20_000))) for it in (p, q)]
    is_same = (tokens[0] == tokens[1]).float().mean()
    expected = 1 / (1 + 1.5 + 2.5) + 1 / (5 / 3 + 1 + 5 / 3) + 1 / (2.5 + 1.5 + 1)
    assert is_same == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20_000))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding"])
def test_a_common_prefix_is_read_once(architecture):
    model, positions = tiny(architecture), []
    contexts = ["a b c d e f g h i " + rest + "<eos>" for rest in ("a", "b c", "d e f", "j i h g")]
    assert ignores_padding(model.model)  # which is tried once
    assert shares_prefixes(model.model, is_padded=True) == (architecture != "sliding")
    model.model.register_forward_pre_hook(
        lambda _, arguments, named: positions.append(named["input_ids"].numel()), with_kwargs=True
    )
    arguments = decoding_arguments("sample", {"max_new_tokens": 8})
    together = generate_in_order(model, contexts, range(4), arguments)
    assert positions[:2] == ([4 * 14, 4] if architecture == "sliding" else [9, 4 * 5])
    assert together == generate_in_order(model, contexts, range(4), arguments, batch_size=1)


@pytest.mark.parametrize("architecture", ["gpt2", "bart"])
def test_a_response_is_cut_if_it_neither_ends_nor_stops(architecture):
    model = tiny(architecture)
    contexts = random_contexts(model, n=60) if architecture == "gpt2" else ["a b", "c"] * 30
    arguments = decoding_arguments("sample", {"max_new_tokens": 3})
    batches = generate_responses(model, contexts, range(60), arguments)
    cuts = {row: response.is_cut for batch in batches for row, response in batch.items()}
    longer = decoding_arguments("sample", {"max_new_tokens": 4})
    short, long = (generate_in_order(model, contexts, range(60), given) for given in (arguments, longer))
    assert {row for row in range(60) if short[row] != long[row]} <= {row for row, cut in cuts.items() if cut}
    assert set(cuts.values()) == {True, False}


@pytest.mark.parametrize("architecture", ["gpt2", "bart"])
def test_a_response_ends_before_an_end_and_a_padding_that_are_ordinary_tokens(architecture):
    model = tiny(architecture)
    contexts = ["a b<eos>" if architecture == "gpt2" else "a b"] * 40
    arguments = decoding_arguments("sample", {"max_new_tokens": 8, "suppress_tokens": [EOS, PAD]})
    whole = generate_in_order(model, contexts, range(40), arguments)
    end = WORDS.index("e")
    model.model.generation_config.eos_token_id = [end]
    model.model.generation_config.pad_token_id = WORDS.index("f")
    ended = generate_in_order(model, contexts, range(40), arguments)
    assert ended == [" ".join(text.split("e")[0].split()) for text in whole]
    assert any(len(text) < len(other) for text, other in zip(ended, whole, strict=True))


@pytest.mark.parametrize("arguments", [{}, {"do_sample": False}, {"do_sample": False, "num_beams": 2}], ids=str)
def test_broken_weights_are_an_error(arguments):
    broken = tiny("gpt2")
    with torch.no_grad():
        broken.model.transformer.ln_f.weight.fill_(torch.nan)
    with pytest.raises(InputError, match="model: .* weights"):
        generate_in_order(broken, ["a<eos>"], [0], decoding_arguments("sample", {"max_new_tokens": 2, **arguments}))


def test_a_begun_response_goes_on_as_the_models_own(gpt2):
    """A greedy response begun with its own first words is the same response, also in a batch with others."""
    greedy, n_words = {"do_sample": False, "max_new_tokens": 6}, 2
    contexts = random_contexts(gpt2)
    whole = generate_in_order(gpt2, contexts, range(len(contexts)), greedy)
    full = [row for row, text in enumerate(whole) if len(text.split()) == 6]  # no special token, and not ended early
    assert len(full) > 5
    openings = [gpt2.tokenizer.encode(" ".join(whole[row].split()[:n_words])) if row % 2 else [] for row in full]
    for n in (4, 6):
        begun = generate_in_order(
            gpt2, [contexts[row] for row in full], full, greedy | {"max_new_tokens": n}, openings=openings
        )
        for row, text in zip(full, begun, strict=True):
            words = 6 if row % 2 else n
            assert text.split()[:words] == whole[row].split()[:words]
