"""BLEU and chrF++ by sacrebleu, with the settings of Costa-jussà et al. 2023 (§4.1)."""

from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from evenhand.evaluation.errors import InputError, unknown_name

FLORES = ("flores101", "flores200")


def bleu(tokenize: str = "flores101") -> BLEU:
    """Return sacrebleu's BLEU with a tokenizer and with add-k smoothing, k = 1 (Costa-jussà et al. 2023, §4.1).

    Raises:
        InputError: there is no such tokenizer, or its SentencePiece model is missing and cannot be downloaded.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise unknown_name("tokenize", tokenize, BLEU.TOKENIZERS)
    try:
        return BLEU(tokenize=tokenize, smooth_method="add-k", smooth_value=1)
    except (OSError, ImportError, RuntimeError, SystemExit) as error:  # sacrebleu exits on an SSL error
        if tokenize not in SPM_MODELS:
            raise InputError(f"tokenize: {tokenize!r} cannot be used ({' '.join(str(error).split())}).") from None
        url = SPM_MODELS[tokenize]["url"]
        path = Path(SACREBLEU_DIR, "models", url.rsplit("/", 1)[1])
        raise InputError(
            f"tokenize: the SentencePiece model of {tokenize!r} is not at {path} and cannot be downloaded ({error}); "
            f"save {url} there (the environment variable SACREBLEU moves the folder), or use a tokenizer without a "
            "model: 13a, intl, char."
        ) from None


def chrf() -> CHRF:
    """Return sacrebleu's chrF++: character n-grams up to 6, word n-grams up to 2 (Popović 2017)."""
    return CHRF(word_order=2)


def metric_name(tokenize: str) -> str:
    """Return the metric's name: "spbleu" for the tokenizers of FLORES (Goyal et al. 2022), else "bleu"."""
    return "spbleu" if tokenize in FLORES else "bleu"
