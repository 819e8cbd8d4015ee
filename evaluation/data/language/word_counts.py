"""Numbers of words in sentences, as in Table 1 of Steinborn et al. 2022."""

import re
from collections.abc import Sequence
from importlib.util import find_spec

THAI = re.compile("[\u0e01-\u0e5b]")
# Scripts that write no blanks between words: Lao, Burmese, Khmer, Japanese kana, Chinese characters.
WITHOUT_BLANKS = re.compile("[\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
NEEDS_THAI = "Thai has no blanks between words; run pip install 'evenhand[thai]' to count them"
NO_WORDS = "the script has no blanks between words"


def count_words(sentences: Sequence[str]) -> tuple[float, str]:
    """Return the number of words in sentences, and why there is none: NaN with a reason, or a count with "".

    White space separates words. Thai is segmented by Deepcut (Kittinaradorn et al. 2019), as in the paper, whose counts
    include the segments that are blanks; it needs the extra `thai`.

    >>> count_words(["Ann is tall.", "Tom is tall."])
    (6.0, '')
    """
    text = "\n".join(sentences)
    if THAI.search(text):
        if find_spec("pythainlp") is None or find_spec("onnxruntime") is None:
            return float("nan"), NEEDS_THAI
        return float(sum(len(_thai_words(sentence)) for sentence in sentences)), ""
    if WITHOUT_BLANKS.search(text):
        return float("nan"), NO_WORDS
    return float(len(text.split())), ""


def _thai_words(sentence: str) -> list[str]:
    import onnxruntime  # here because the extra may be missing
    from pythainlp.tokenize import word_tokenize

    onnxruntime.disable_telemetry_events()
    return word_tokenize(sentence, engine="deepcut", keep_whitespace=True)
