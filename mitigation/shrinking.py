"""The fit of `shrink`'s maps to training rows, and the folder of the maps."""

import logging
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.files import write_json, write_text
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.tokens import encode_pairs
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.padding import ignores_padding
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, TUNING_FILE, hub_repository, is_gguf
from evenhand.evaluation.report.words import document
from evenhand.evaluation.score import display_name
from evenhand.evaluation.statistics.people_divergence import people_divergence
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.mitigation.card import (
    MAX_NEW_TOKENS,
    TuningFacts,
    context_code,
    precision,
    stop_strings,
    table,
)
from evenhand.mitigation.edited_likelihoods import edited_log_likelihoods
from evenhand.mitigation.guards import OutputChange
from evenhand.mitigation.hidden_state_maps import (
    Group,
    Maps,
    batches_of_groups,
    edited,
    fit_maps,
    save_maps,
)
from evenhand.mitigation.labelled_responses import CONTEXT, OTHERS
from evenhand.mitigation.methods.shrink import MAPS_FILE, Shrink
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training import Dialogue, TuningResult, tuning_facts
from evenhand.mitigation.training_rows import ReadDialogue, TrainingRows, dialogue_of, prompt_ids, response_ids

log = logging.getLogger("evenhand")

CARD = Path(__file__).with_name("maps.md.j2")
LOSS = "divergence between people of the first tokens, in nats"


def fit_shrink(
    base: DialogueModel,
    rows: TrainingRows,
    settings: TuningSettings,
    output_dir: Path,
    *,
    seed: int = 0,
    neutral: Dialogue | None = None,
    card: Mapping[str, object] | None = None,
    **unused: object,
) -> TuningResult:
    """Fit the maps of `shrink` to training rows and write them to `output_dir`/adapter, atomically.

    The arguments are those of `training.tune`; nothing is trained, so that `seed`, callbacks and trackers have no
    effect. Losses are the divergence between people of the first tokens of validation rows, before (step 0) and after.

    Raises:
        InputError: the rows are too short, or padding changes what the model predicts.
        TuningRejected: the perplexity of dialogue rose by more than `max_perplexity_rise`.
    """
    method = rows.method
    assert isinstance(method, Shrink)
    if not ignores_padding(base.model):
        raise InputError("method", f"padding changes what {base.name} predicts; give a method that trains by SFT.")
    n_tokens = method.settings.first_tokens
    train = encoded_groups(base, rows.train, n_tokens)
    validation = encoded_groups(base, rows.validation, n_tokens)
    maps = fit_maps(base.model, train, n_tokens, method.settings.ridge)
    strength = method.settings.strength  # with which the model is measured, and its card's code loads it
    before, _ = divergence_and_change(base, validation, {}, n_tokens)
    after, change = divergence_and_change(base, validation, maps, n_tokens, strength)
    dialogue = dialogue_of(rows.validation, CONTEXT)
    if neutral is not None:
        prompts, responses = neutral
        dialogue = ReadDialogue(render_contexts(base, prompts, [""] * len(prompts), base.control_tag), responses)
    perplexity = (_perplexity(base, dialogue, {}), _perplexity(base, dialogue, maps, strength))
    _check_perplexity(perplexity, settings.max_perplexity_rise)
    result = TuningResult(
        path=output_dir / ADAPTER_FOLDER,
        train_losses=(),
        validation_losses=((0, before), (1, after)),
        measured={},
        best_step=1,
        stopped_early=False,
        n_train=len(train),
        n_validation=len(validation),
        trainable_parameters=sum(of_layer.matrix.numel() + of_layer.mean.numel() for of_layer in maps.values()),
        perplexity=perplexity,
        change=change,
    )
    _save(base, method, maps, result, settings, card or {})
    log.info("tuning: divergence of the first tokens %.4f → %.4f nats", before, after)
    log.info("tuning: perplexity %.3f → %.3f", *perplexity)
    return result


def _save(
    base: DialogueModel,
    method: Shrink,
    maps: Maps,
    result: TuningResult,
    settings: TuningSettings,
    card: Mapping[str, object],
) -> None:
    """Write the maps, evenhand.json and a card with a loader into the folder of the result, atomically."""
    with atomic_write_folder(result.path) as folder:
        save_maps(maps, folder / MAPS_FILE)
        recorded = settings.model_dump() | method.settings.model_dump()
        facts = tuning_facts(base, method, LOSS, recorded, result, folder)
        write_json(folder / TUNING_FILE, facts)
        write_text(folder / "README.md", maps_card(facts, card, base))


def maps_card(
    facts: TuningFacts,
    further: Mapping[str, object],
    base: DialogueModel,
    *,
    decoding: Mapping[str, object] | None = None,
    results: str = "",
) -> str:
    """Return the card of the maps in a folder as Markdown; its code answers as Evenhand does.

    Args:
        facts: the content of evenhand.json.
        further: additional rows of the card's table.
        base: the model that was tuned, which may have no weights.
        decoding: of exported maps, the content of the generation_config.json in their folder.
        results: a section on the scores before and after tuning.
    """
    training = facts["training"]
    lines = {"rows": f"{training['n_train']} for the fit, {training['n_validation']} for validation", **further}
    lines["divergence of the first tokens, nats"] = " → ".join(f"{x:.4f}" for _, x in training["validation_losses"])
    lines["perplexity of dialogue"] = " → ".join(f"{x:.3f}" for x in training["perplexity"])
    repository = hub_repository(base.name)
    source = {"pretrained_model_name_or_path": display_name(base.name)}
    if repository is not None and facts["base_revision"]:
        source["revision"] = facts["base_revision"]
    return document(
        CARD,
        base=display_name(base.name),
        is_loadable=repository is not None and not is_gguf(base.name),
        source=repr(source),  # the name of a folder may have quotation marks
        dtype=precision(base),
        file=MAPS_FILE,
        strength=facts["settings"]["strength"],
        context=context_code(base, ""),
        ends=base.model.generation_config.eos_token_id,
        max_new_tokens=MAX_NEW_TOKENS,
        reads_decoding=decoding is not None,
        stop_strings=stop_strings(decoding or {}),
        rows=table(lines),
        results=results,
    )


def encoded_groups(base: DialogueModel, rows: Dataset, n_tokens: int) -> Sequence[Group]:
    """Return the contexts and the response of each row; InputError if all responses are too short."""
    contexts = [[context, *others] for context, others in zip(rows[CONTEXT], rows[OTHERS], strict=True)]
    ids = iter(prompt_ids(base, list(chain.from_iterable(contexts))))
    encoded = [[next(ids) for _ in group] for group in contexts]
    responses = response_ids(base, rows, [max(group, key=len) for group in encoded])
    groups = [
        (group, response) for group, response in zip(encoded, responses, strict=True) if len(response) >= n_tokens
    ]
    if not groups:
        raise InputError("rows", f"no response has {n_tokens} tokens; set a smaller shrink.first_tokens.")
    return groups


@torch.inference_mode()
def divergence_and_change(
    base: DialogueModel, groups: Sequence[Group], maps: Maps, n_tokens: int, strength: float = 1.0
) -> tuple[float, OutputChange]:
    """Return the mean divergence between people with the maps, in nats, and the change of outputs from the base.

    The greedy share is of the most probable first tokens.
    """
    n_people = len(groups[0][0])
    divergences = []
    changes = []
    differs = []
    for _, inputs, columns in batches_of_groups(base.model, groups, n_tokens):
        with edited(base.model, maps, strength) as editor:
            plain = base.model(**inputs, use_cache=False, logits_to_keep=n_tokens).logits
            editor.columns = columns
            logits = base.model(**inputs, use_cache=False, logits_to_keep=n_tokens).logits
        changes.append((logits[:, 0] - plain[:, 0]).abs().amax(-1))
        differs.append(logits[:, 0].argmax(-1) != plain[:, 0].argmax(-1))
        log_p = logits.float().log_softmax(-1).unflatten(0, (-1, n_people)).transpose(0, 1)
        tokens = inputs["input_ids"].unflatten(0, (-1, n_people))[:, 0, -n_tokens:]
        openings = tokens.roll(-1, dims=1)  # the last token of an opening has no influence
        divergences.append(people_divergence(log_p, openings).mean(0))
    change = OutputChange(
        n=sum(map(len, changes)),
        max_logit_change=float(torch.cat(changes).max()),
        greedy_share=float(torch.cat(differs).float().mean()),
    )
    return float(torch.cat(divergences).mean()), change


def _perplexity(base: DialogueModel, dialogue: ReadDialogue, maps: Maps, strength: float = 1.0) -> float:
    ids = encode_pairs(base, dialogue.contexts, dialogue.responses, dialogue.written, dialogue.is_cut)
    log_p, tokens = edited_log_likelihoods(base, maps, strength, *ids)
    if not maps and np.isnan(log_p).any():
        raise InputError("responses", f"a context with its response is too long for {base.name}; leave it out.")
    return math.exp(-log_p.sum() / tokens.sum())


def _check_perplexity(perplexities: tuple[float, float], rise: float | None) -> None:
    """Raise TuningRejected if the perplexity rose by more than the limit, in %."""
    before, after = perplexities
    if math.isfinite(after) and (rise is None or after <= before * (1 + rise / 100)):
        return
    raise TuningRejected(
        "shrink",
        f"the maps damaged the model: the perplexity of dialogue rose from {before:.3f} to {after:.3f}, and "
        f"max_perplexity_rise is {rise}. Give more rows (training.max_rows), or set a larger shrink.ridge.",
    )
