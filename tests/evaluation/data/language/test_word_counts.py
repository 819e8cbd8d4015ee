"""Numbers of words, by white space and, of Thai, by Deepcut."""

import math
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.data.language.word_counts import count_words

PAIRS = Path(__file__).resolve().parents[5] / "shared" / "data" / "s_jsd"


@pytest.mark.parametrize(("language", "words"), [("de", 5470), ("en", 5548), ("id", 4790)])
def test_the_papers_files_have_the_papers_words(language, words):
    file = PAIRS / f"cps_translated_{language}_formatted.csv"
    if not file.is_file():
        pytest.skip("the files of Steinborn et al. 2022 are not here")
    pairs = pd.read_csv(file)
    assert count_words([*pairs["A_x"], *pairs["B_x"]]) == (words, "")  # Table 1


def test_thai_words_are_those_of_deepcut():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("pythainlp")
    assert count_words(["ผมรักคุณ"]) == (3, "")  # I love you


def test_a_script_without_blanks_has_no_count():
    count, reason = count_words(["我爱你。"])
    assert math.isnan(count) and "blanks" in reason
