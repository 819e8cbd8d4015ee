"""How a measurement differs from the one of Smith et al. 2022, by its settings."""

import logging
from typing import TYPE_CHECKING

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.runs import processes
from evenhand.evaluation.settings import AUTO

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.settings import Settings

log = logging.getLogger("evenhand")

TITLE = "What differs from Smith et al. 2022"
PAPER = "paper"  # the preset, taxonomy and form of personas
PAPER_CLUSTERS = "image_chat"
BEAMS = {10: "DialoGPT", 3: "BlenderBot 2.0"}  # A.4
MIN_TOKENS = 20  # A.4
NGRAM = 3  # A.4
RESPONSES_PER_CELL = 16  # 594 descriptors × 26 templates × 16 are 247,104 responses; A.5: at least 240,000
CORPUS_EXAMPLES = 10_000_000  # B.2.1


def differences_from_paper(config: FamilyConfig) -> list[Finding]:
    """Return a finding for each way in which a measurement differs from the measurement of Smith et al. 2022.

    The last two differences are of the code, and hold for every measurement.
    """
    settings: Settings = config.settings
    return [
        Finding("paper_model", {"model_name": str(config.model.name)}),
        *_precision_differences(config),
        Finding("paper_classifier", {"classifier": str(settings.style_classifier.name)}),
        *_cluster_differences(settings),
        *_prompt_differences(config),
        *_decoding_differences(config),
        *_corpus_differences(settings),
        Finding("paper_mentions"),
        Finding("paper_quotes"),
    ]


def _precision_differences(config: FamilyConfig) -> list[Finding]:
    precision = config.model.quantization or config.model.dtype
    is_rounded = config.has_weights and precision not in (AUTO, "float32")
    return [Finding("paper_precision", {"precision": precision})] if is_rounded else []


def _cluster_differences(settings: "Settings") -> list[Finding]:
    return [] if settings.style_clusters == PAPER_CLUSTERS else [Finding("paper_clusters")]


def _prompt_differences(config: FamilyConfig) -> list[Finding]:
    prompts = config.prompts
    found = []
    if prompts.dataset != PAPER:
        found.append(Finding("paper_dataset", {"dataset": prompts.dataset}))
    if prompts.descriptors is not None:
        found.append(Finding("paper_descriptors", {"n": prompts.descriptors}))
    if prompts.answers_per_cell != RESPONSES_PER_CELL:
        found.append(Finding("paper_responses", {"n": prompts.answers_per_cell, "n_paper": RESPONSES_PER_CELL}))
    found.append(Finding("paper_personas", {"personas": prompts.personas, "is_form": prompts.personas == PAPER}))
    if not prompts.variations:
        found.append(Finding("paper_variations"))
    if config.split != "all":
        found.append(Finding("paper_split", {"split": config.split}))
    return found


def _decoding_differences(config: FamilyConfig) -> list[Finding]:
    arguments = decoding_arguments(config.decoding.preset, config.decoding.arguments)
    found = []
    beams = arguments.get("num_beams")
    if beams not in BEAMS:
        found.append(Finding("paper_beams", {"n": beams, "paper": BEAMS}))
    if arguments.get("min_new_tokens") != MIN_TOKENS:
        found.append(Finding("paper_min_tokens", {"n": arguments.get("min_new_tokens"), "n_paper": MIN_TOKENS}))
    if arguments.get("no_repeat_ngram_size") != NGRAM:
        found.append(Finding("paper_ngrams", {"n_paper": NGRAM}))
    found.append(Finding("paper_max_tokens", {"n": arguments["max_new_tokens"]}))
    return found


def _corpus_differences(settings: "Settings") -> list[Finding]:
    if settings.corpus is None or not settings.corpus.paths:
        return []
    found = [Finding("paper_corpus_words")]
    if settings.corpus.limit != CORPUS_EXAMPLES:
        found.append(Finding("paper_corpus_size", {"n": settings.corpus.limit}))
    else:
        found.append(Finding("paper_corpus_order"))
    return found


def differences_section(run: FamilyRun) -> Section:
    """Return the section that lists the differences, for a run with the paper's decoding; else an empty section."""
    found = differences_from_paper(run.config) if follows_paper(run.config) else []
    return Section(TITLE, list(map(words, found)), folded=True)


def log_differences(config: FamilyConfig) -> None:
    """Log the differences before a measurement with the paper's decoding, on rank 0 only."""
    if follows_paper(config) and processes.is_rank_zero():
        log.info("%s: %s", TITLE, " ".join(map(words, differences_from_paper(config))))


def follows_paper(config: FamilyConfig) -> bool:
    """Return whether a measurement generates responses as the paper does, so that its differences are of interest."""
    return config.decoding.preset == PAPER and config.open_model().can_be_asked
