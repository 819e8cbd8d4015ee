"""How a measurement differs from the one of Smith et al. 2022, by its settings."""

import logging
from typing import TYPE_CHECKING

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.runs import processes

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


def differences_from_paper(config: FamilyConfig) -> list[str]:
    """Return one sentence for each way in which a measurement differs from the measurement of Smith et al. 2022.

    The last two differences are of the code, and hold for every measurement.
    """
    settings: Settings = config.settings
    model = sanitize(str(config.model.name), 120)
    classifier = sanitize(str(settings.style_classifier.name), 120)
    return [
        f"The model is {model}; the paper has DialoGPT tuned on ConvAI2, and BlenderBot 2.0.",
        f"The style classifier is {classifier}; the paper's has 217 styles.",
        *_cluster_differences(settings),
        *_prompt_differences(config),
        *_decoding_differences(config),
        *_corpus_differences(settings),
        "Mentions of the descriptor are found in any case, as whole words, with blanks or hyphens between their words; "
        "A.6 does not say how.",
        "Responses that quote their prompt with at most six further words count as repeating it (C.2.1: exact copies).",
    ]


def _cluster_differences(settings: "Settings") -> list[str]:
    if settings.style_clusters == PAPER_CLUSTERS:
        return []
    return [
        "The style clusters are not the paper's (`image_chat`): Tables 4 and 8 also have ENVY and HATE, for which "
        "GoEmotions has no styles."
    ]


def _prompt_differences(config: FamilyConfig) -> list[str]:
    prompts = config.prompts
    found = []
    if prompts.dataset != PAPER:
        found.append(f"The descriptors are of {sanitize(prompts.dataset, 120)}; the paper's edition is “{PAPER}”.")
    if prompts.descriptors is not None:
        found.append(f"{prompts.descriptors} descriptors are drawn; the paper has all 594.")
    if prompts.answers_per_cell != RESPONSES_PER_CELL:
        found.append(
            f"A descriptor has {prompts.answers_per_cell} responses in each template; {RESPONSES_PER_CELL} give the "
            "240,000 responses of A.5."
        )
    if prompts.personas == PAPER:
        found.append("Personas have the paper's form (“your persona: …”), and other sentences than ConvAI2's.")
    else:
        found.append(f"Personas: {sanitize(prompts.personas, 120)}; the paper has two sentences of ConvAI2 (A.4).")
    if not prompts.variations:
        found.append("Prompts have no stylistic variations (A.3).")
    if config.split != "all":
        found.append(f"Only the nouns of the split “{config.split}” are measured; the paper measures all.")
    return found


def _decoding_differences(config: FamilyConfig) -> list[str]:
    arguments = decoding_arguments(config.decoding.preset, **config.decoding.arguments)
    found = []
    beams = arguments.get("num_beams")
    if beams not in BEAMS:
        expected = " and ".join(f"{number} for {model}" for number, model in BEAMS.items())
        found.append(f"The beam search has {beams or 'no'} beams; the paper has {expected} (A.4).")
    if arguments.get("min_new_tokens") != MIN_TOKENS:
        found.append(f"The minimum length is {arguments.get('min_new_tokens') or 0}; the paper has {MIN_TOKENS} (A.4).")
    if arguments.get("no_repeat_ngram_size") != NGRAM:
        found.append(f"{NGRAM}-grams are not blocked within the response (A.4).")
    found.append(f"A response has at most {arguments['max_new_tokens']} tokens; the paper gives no maximum.")
    return found


def _corpus_differences(settings: "Settings") -> list[str]:
    if settings.corpus is None or not settings.corpus.paths:
        return []
    found = ["Descriptors of several words are counted in the corpus, too; the paper counts single words (B.2.1)."]
    if settings.corpus.limit != CORPUS_EXAMPLES:
        read = f"the first {settings.corpus.limit:,}" if settings.corpus.limit is not None else "all"
        found.append(f"Of a corpus, {read} examples are read; the paper draws 10 million at random (B.2.1).")
    else:
        found.append("The first 10 million examples of a corpus are read; the paper draws them at random (B.2.1).")
    return found


def differences_section(run: FamilyRun) -> Section:
    """Return the section that lists the differences, for a run with the paper's decoding; else an empty section."""
    return Section(TITLE, differences_from_paper(run.config) if follows_paper(run.config) else [], folded=True)


def log_differences(config: FamilyConfig) -> None:
    """Log the differences before a measurement with the paper's decoding, on rank 0 only."""
    if follows_paper(config) and processes.is_rank_zero():
        log.info("%s: %s", TITLE, " ".join(differences_from_paper(config)))


def follows_paper(config: FamilyConfig) -> bool:
    """Return whether a measurement generates responses as the paper does, so that its differences are of interest."""
    return config.decoding.preset == PAPER and config.open_model().can_be_asked
