"""What a tuned model is held against before it is handed out: its base, on contexts and on ordinary dialogue."""

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evenhand.evaluation.errors import InputError, Refused
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.results import display_name
from evenhand.mitigation.training.settings import TuningSettings

MAX_CHECKED_CONTEXTS, MAX_CHECKED_TOKENS = 64, 20
# Where no logit moves by more, every token's probability is the same to 0.2 %: the weights were not applied.
MIN_LOGIT_CHANGE = 1e-3


@dataclass(frozen=True)
class OutputChange:
    """How a tuned model differs from its base on `n` contexts.

    `max_logit_change` is the largest absolute difference of a logit of the response's first token, in nats;
    `greedy_share` the share of contexts with another greedy response (its first 20 tokens). `max_rounding` is the
    largest difference of such a logit from the adapter kept apart: what merging it rounds away, 0 in float32.
    """

    n: int
    max_logit_change: float
    greedy_share: float
    max_rounding: float = 0.0

    @property
    def outputs_changed(self) -> bool:
        return self.max_logit_change > MIN_LOGIT_CHANGE


def output_change(
    base: DialogueModel, tuned: DialogueModel, unmerged: DialogueModel, contexts: Sequence[str]
) -> OutputChange:
    """Compare two models' first-token logits and greedy responses on rendered contexts.

    `unmerged` is the tuned model with its adapter beside the base; the tuned one itself where that is the same.
    """
    contexts = close_reasoning(list(dict.fromkeys(contexts))[:MAX_CHECKED_CONTEXTS])
    largest = rounded = 0.0
    for token_ids in encode_contexts(base, contexts):
        first, second = (_first_logits(model, token_ids) for model in (base, tuned))
        largest = max(largest, float((first - second).abs().max()))
        if unmerged is not tuned:
            rounded = max(rounded, float((_first_logits(unmerged, token_ids) - second).abs().max()))
    greedy = {"do_sample": False, "max_new_tokens": MAX_CHECKED_TOKENS}
    answers = []
    for model in (base, tuned):
        responses = [""] * len(contexts)
        for indices, texts in generate_responses(model, contexts, [0] * len(contexts), greedy):
            for index, text in zip(indices, texts, strict=True):
                responses[index] = text
        answers.append(responses)
    differ = [before != after for before, after in zip(*answers, strict=True)]
    return OutputChange(len(contexts), largest, sum(differ) / len(differ), rounded)


@torch.inference_mode()
def _first_logits(dialogue_model: DialogueModel, token_ids: list[int]) -> torch.Tensor:
    """Return the logits of the response's first token, (vocabulary,)."""
    model = dialogue_model.model
    inputs = {"input_ids": torch.tensor([token_ids], device=model.device)}
    if dialogue_model.kind == "encoder_decoder":
        inputs["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id]], device=model.device)
    return model(**inputs).logits[0, -1].float().cpu()


def check_outputs_changed(
    change: OutputChange, base: DialogueModel, settings: TuningSettings, step: int, steps: int
) -> None:
    """Refuse a tuned model that says what its base says; its weights are those after `step` of `steps`.

    Raises:
        Refused: no logit moved enough.
    """
    if not change.outputs_changed:
        dtype = str(base.model.dtype).removeprefix("torch.")
        rounding = f" once rounded to {dtype}, which took up to {change.max_rounding:.1g} of a logit"
        raise Refused(
            f"learning_rate: {settings.learning_rate} left {display_name(base.name)} as it was: after step {step} of "
            f"{steps}, of the best validation loss, the largest change of a logit is {change.max_logit_change:.1g}"
            f"{rounding if change.max_rounding else ''}. Train longer (more prompts or epochs, smaller batch_size) or "
            "raise the rate, and give another --output_dir."
        )


def perplexity(model: DialogueModel, contexts: Sequence[str], responses: Sequence[str]) -> float:
    """Return the perplexity of the responses to the contexts; infinite where a model gives one no probability."""
    log_likelihood, tokens = response_perplexity(model, contexts, responses)
    mean = -log_likelihood.sum() / tokens.sum()
    return math.exp(mean) if mean < 700 else math.inf


def check_perplexity(before: float, after: float, settings: TuningSettings) -> None:
    """Refuse a tuned model whose perplexity of ordinary dialogue rose from `before` to `after`.

    Raises:
        Refused: by a larger share than `max_perplexity_increase`, or it is NaN.
    """
    if not after <= before * (1 + settings.max_perplexity_increase):
        raise Refused(
            f"learning_rate: {settings.learning_rate} spoiled the model: the perplexity of ordinary dialogue went from "
            f"{before:.3f} to {after:.3f}, and max_perplexity_increase is {settings.max_perplexity_increase}. Lower "
            "the rate, or raise preference_beta, and give another --output_dir."
        )


def check_single_gpu(device: torch.device, placed: bool) -> None:
    """Refuse what a trainer would spread over all GPUs that it sees, batch by batch, whatever the model's device.

    Args:
        placed: a map says which part of the model is on which device.

    Raises:
        InputError: there are several, none is chosen, and neither a launcher nor a device map says who does what.
    """
    seen = torch.cuda.device_count() if device.type == "cuda" else 1
    if seen > 1 and "LOCAL_RANK" not in os.environ and not placed:
        raise InputError(
            f"model.device: {seen} GPUs are visible, and the trainer would use them all; set CUDA_VISIBLE_DEVICES to "
            "one of them, spread the model by model.device_map, or start with `accelerate launch`."
        )


def check_base_unchanged(base: DialogueModel, sha256: str) -> None:
    """Stop if the base's weights are no longer those with this hash.

    Raises:
        RuntimeError: as said; a mistake here, not the user's.
    """
    if weights_sha256(base.model) != sha256:
        raise RuntimeError(f"tuning changed the weights of {base.name}, which it must not")


def weights_sha256(model: torch.nn.Module) -> str:
    """Return a hash of all of a model's weights, whatever device they are on."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
