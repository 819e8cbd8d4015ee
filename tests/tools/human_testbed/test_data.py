"""The data that people wrote: absent, other than ours, and what is taken of it; the last on the data where it is."""

from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError
from tools.human_testbed import data

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not (DATA / data.TRAIN).is_file(), reason="GoEmotions is not in ../shared/data")


def test_what_is_absent_or_another_file_is_told(tmp_path):
    with pytest.raises(InputError, match=r"data: there is no .*train\.tsv; give the folder that holds GoEmotions"):
        data.check_data(tmp_path)
    path = tmp_path / data.TRAIN
    path.parent.mkdir(parents=True)
    path.write_text("Nice.\t0\tid\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not the file that the testbed was made of"):
        data.check_data(tmp_path)


def test_the_bank_is_short_plain_comments_with_one_label_of_one_half(tmp_path):
    (tmp_path / "goemotions" / "original").mkdir(parents=True)
    (tmp_path / data.LABELS).write_text("joy\nfear\n", encoding="utf-8")
    texts = [f"Nice thing number {n}" for n in range(40)]
    odd = ["Oh", "[NAME] is nice", "See http://x.y", "word " * 13, "It’s nice"]
    lines = [f"{text}\t0\tid" for text in texts + odd] + ["Two labels here\t0,1\tid", "Scary thing\t1\tid"]
    (tmp_path / data.TRAIN).write_text("\n".join(lines) + "\n", encoding="utf-8")
    taken, left = data.bank(tmp_path), data.classifier_texts(tmp_path)
    ours = [text for text in texts if data.is_of_bank(text)]
    assert 10 < len(ours) < 30
    assert set(taken["text"]) - {"It's nice", "Scary thing"} == set(ours)
    assert not set(taken["text"]) & set(left["text"]) and len(left) == sum(
        not data.is_of_bank(line.split("\t")[0]) for line in lines
    )
    assert data.is_of_bank("It’s nice") == data.is_of_bank("It's  nice")


@needs_data
def test_the_real_data_is_what_the_documentation_says():
    data.check_data(DATA)
    bank = data.bank(DATA)
    assert len(bank) == 3020 and bank["text"].is_unique and bank["emotion"].nunique() == 28
    assert bank["emotion"].value_counts().max() == data.MAX_OF_AN_EMOTION
    classified = set(data.classifier_texts(DATA)["text"])
    assert not set(bank["text"]) & classified and not set(data.held_out_comments(DATA)) & set(bank["text"])
    train, held_out = (data.small_talk(DATA, held_out) for held_out in (False, True))
    assert len(train) == 1520 and len(held_out) == 1483
