"""Checks before training, of the loss, and before a tuned model's folder is written: losses, outputs, perplexity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, TuningRejected, rejects_tuning
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.score import display_name
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training_rows import ReadDialogue

MAX_CHECKED_CONTEXTS = 64
MAX_CHECKED_TOKENS = 20
IN_A_LOOP = "in a loop, delete this tuning's folder: its measurements are kept"
# If no logit changes by more, every token's probability changes by less than 0.2 %: the weights were not applied.
MIN_LOGIT_CHANGE = 1e-3
MAX_OTHER_LOSS = 0.02  # nats by which a loss may differ, such as by a term that balances experts


@dataclass(frozen=True)
class OutputChange:
    """The difference between a tuned model and its base on `n` contexts.

    `max_logit_change` is the largest absolute change of a logit of the response's first token, in nats, and
    `greedy_share` the share of contexts whose greedy response (its first 20 tokens) changed.
    """

    n: int
    max_logit_change: float
    greedy_share: float

    @property
    def outputs_changed(self) -> bool:
        """Whether a logit changed by more than MIN_LOGIT_CHANGE."""
        return self.max_logit_change > MIN_LOGIT_CHANGE


@torch.no_grad()
def check_next_token_loss(base: DialogueModel) -> None:
    """Raise InputError if a causal model's loss compares predictions with another token than the next (XLM, XLNet)."""
    ids = torch.arange(4, device=base.model.device)[None]
    output = base.model(input_ids=ids, labels=ids)
    expected = cross_entropy(output.logits[0, :-1].float(), ids[0, 1:])
    if not torch.isclose(output.loss.float(), expected, atol=MAX_OTHER_LOSS):
        raise InputError(
            "method",
            f"the loss of {base.name} in transformers is of the token that it reads, not of the next one; tune another "
            "model, or by distill, which computes its own loss.",
        )


def check_losses(losses: Sequence[tuple[int, float]], best_step: int | None, settings: TuningSettings) -> None:
    """Raise an error if there is no best step: no validation after a step, or no loss, as (step, loss), is a number.

    Raises:
        InputError: nothing was validated after a step.
        TuningRejected: no loss is a number.
    """
    if not any(step > 0 for step, _ in losses):
        raise InputError(
            "training.trainer",
            "the training ended before its first validation after a step; give a larger max_steps, or a smaller "
            f"eval_delay, and another {spelled('output_dir')}; {IN_A_LOOP}.",
        )
    if not any(step == best_step and step > 0 and math.isfinite(loss) for step, loss in losses):
        raise TuningRejected(
            "learning_rate",
            f"{settings.learning_rate} damaged the model: the validation loss was never a finite number after a step. "
            f"Lower the learning rate, and give another {spelled('output_dir')}; {IN_A_LOOP}.",
        )


def check_tuned(
    base: DialogueModel,
    tuned: DialogueModel,
    dialogues: tuple[ReadDialogue, ReadDialogue],
    contexts: Sequence[str],
    settings: TuningSettings,
    steps: str,
) -> tuple[tuple[float, float], OutputChange]:
    """Return the perplexities of the base and of the tuned model, and the change of outputs.

    `dialogues` are what each of the two models reads; `contexts` are rendered contexts to respond to; `steps` is the
    step of the saved weights, such as "step 10 of 20".

    Raises:
        TuningRejected: the perplexity is not finite or rose by more than `max_perplexity_rise`; or no output changed.
    """
    of_base, of_tuned = dialogues
    before = perplexity(base, of_base, "perplexity of the base")
    with rejects_tuning():  # its probabilities may be NaN
        after = perplexity(tuned, of_tuned, "perplexity of the tuned model")
    rate = settings.learning_rate
    rise = settings.max_perplexity_rise
    if not math.isfinite(after) or (rise is not None and after > before * (1 + rise / 100)):
        limit = "null" if rise is None else f"{rise:g} %"
        raise TuningRejected(
            "learning_rate",
            f"{rate} damaged the model: the perplexity of dialogue rose from {before:.3f} to {after:.3f}, and "
            f"max_perplexity_rise is {limit}. Lower the learning rate, and give another {spelled('output_dir')}; "
            f"{IN_A_LOOP}.",
        )
    change = output_change(base, tuned, contexts)
    if not change.outputs_changed:
        raise TuningRejected(
            "learning_rate",
            f"{rate} did not change the outputs of {display_name(base.name)}: at {steps}, of the best validation loss, "
            f"the largest change of a logit is {change.max_logit_change:.1g}. If the validation loss rose after that "
            "step, lower the learning rate or give more rows; else train longer or raise the learning rate. Then "
            f"give another {spelled('output_dir')}; {IN_A_LOOP}.",
        )
    return (before, after), change


def output_change(base: DialogueModel, tuned: DialogueModel, contexts: Sequence[str]) -> OutputChange:
    """Return the change of first-token logits and greedy responses on rendered contexts, see `check_tuned`."""
    contexts = close_reasoning(list(dict.fromkeys(contexts))[:MAX_CHECKED_CONTEXTS], base.reasoning)
    max_change = 0.0
    for token_ids in encode_contexts(base, contexts):
        change = _first_logits(base, token_ids) - _first_logits(tuned, token_ids)
        max_change = max(max_change, float(change.abs().max()))
    before = _greedy_responses(base, contexts, "greedy responses of the base")
    after = _greedy_responses(tuned, contexts, "greedy responses of the tuned model")
    n_changed = sum(old != new for old, new in zip(before, after, strict=True))
    return OutputChange(n=len(contexts), max_logit_change=max_change, greedy_share=n_changed / len(contexts))


def _greedy_responses(model: DialogueModel, contexts: Sequence[str], description: str) -> list[str | None]:
    """Return the first MAX_CHECKED_TOKENS tokens of the greedy response to each rendered context, as text."""
    greedy = {"do_sample": False, "max_new_tokens": MAX_CHECKED_TOKENS}
    responses: list[str | None] = [None] * len(contexts)
    with progress(len(contexts), description, "responses") as bar:
        for generated in generate_responses(model, contexts, [0] * len(contexts), greedy):
            for row, response in generated.items():
                responses[row] = response.text
            bar.update(len(generated))
    return responses


@torch.inference_mode()
def _first_logits(dialogue_model: DialogueModel, token_ids: list[int]) -> torch.Tensor:
    """Return the logits of the response's first token, (vocabulary,)."""
    model = dialogue_model.model
    inputs = {"input_ids": torch.tensor([token_ids], device=model.device)}
    if dialogue_model.kind == "encoder_decoder":
        inputs["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id]], device=model.device)
    return model(**inputs).logits[0, -1].float().cpu()


def perplexity(model: DialogueModel, dialogue: ReadDialogue, description: str = "perplexity") -> float:
    """Return the perplexity of the responses to the contexts; infinity if a probability is 0."""
    with progress(len(dialogue.contexts), description, "responses") as bar:
        log_likelihood, tokens = response_perplexity(
            model,
            dialogue.contexts,
            dialogue.responses,
            bar.update,
            written=dialogue.written,
            is_cut=dialogue.is_cut,
        )
    mean = -log_likelihood.sum() / tokens.sum()
    return math.exp(mean) if mean < 700 else math.inf
