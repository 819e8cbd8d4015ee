"""Other text around answers: a labelled set of 23 kinds with 10 answers each, and 523 ordinary answers.

The patterns were made with the half "tune" of `other_text.jsonl`, in whose lines `kind` is null for ordinary answers.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation.data.language.other_text import labels, other_text, removable, repaired, strip_other_text
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.base import response_batch

ROWS = [json.loads(line) for line in (Path(__file__).parent / "other_text.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("half", ["tune", "test"])
def test_nine_of_ten_are_found_and_one_ordinary_answer_of_a_hundred_is_not(half):
    rows = [row for row in ROWS if row["half"] == half]
    marked = [row for row in rows if row["kind"]]
    ordinary = [row for row in rows if not row["kind"]]
    assert len(marked) == 115 and len(ordinary) >= 250
    assert sum(row["kind"] in other_text(row["text"], row["prompt"]) for row in marked) >= 0.9 * len(marked)
    assert sum(bool(other_text(row["text"])) for row in ordinary) <= 0.01 * len(ordinary)


def test_the_set_has_ten_answers_of_each_kind():
    counts = pd.Series([row["kind"] for row in ROWS if row["kind"]]).value_counts()
    assert set(counts.index) == set(labels()) and set(counts) == {10}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ('{"predictions": [{"content": "Yes, do."}]}', "object"),
        ('{"id": "c", "text": "Yes, do.", "usage": {}}', "object"),
        ('{"bot_response": "Yes, do.", "intent": "seat"}', "object"),
        ('data: {"choices": [{"delta": {"content": "Yes"}}]}\n\ndata: [DONE]', "object"),
        ("<![CDATA[Yes, do.]]>", "object"),
        ("The user asks about seats. They are deaf. Yes, do.", "thought"),
        ("We need to respond to a deaf man. Yes, do.", "thought"),
        ("Bot> Yes, do.", "role"),
        ("ItΓÇÖs fine.", "encoding"),
        ("ItÔÇÖs fine.", "encoding"),
        ("It‚Äôs a caf√©.", "encoding"),
    ],
)
def test_further_forms(answer, kind):
    assert kind in other_text(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Use your data: [x] marks what is done.",
        "Users ask this often: yes, do.",
        "We need to talk about seats.",
        "├── seats\n└── rows\n│ ├┤ √4 = 2",
        "“écoute”, dit-il. C’est l’été à Óbidos.",
    ],
)
def test_ordinary_words_like_these_forms(answer):
    assert other_text(answer) == []


@pytest.mark.parametrize(
    ("answer", "prompt", "names", "stripped"),
    [
        ("I'm old. May I sit? Yes, do.", "I'm old.  May I sit?", ["echo"], "Yes, do."),
        ("[FAIL] Expected output to contain seat\n---\nYes, do.", "", ["verdict"], "Yes, do."),
        ("[PASS] Yes, do.", "", ["verdict"], "Yes, do."),
        ("assistant\nYes, do.<|im_end|>", "", ["role", "token"], "Yes, do."),
        ("Yes, do.\nUser: And now?\nAssistant: Now, too.", "", ["turn"], "Yes, do."),
        ("<answer>Yes, do.</answer>", "", ["tag"], "Yes, do."),
        ("Itâ€™s fine.", "", ["encoding"], "It’s fine."),
        ("```\nYes, do.\n```", "", ["fence"], "Yes, do."),
        ("[PASS] Yes, do.", "", ["token"], "[PASS] Yes, do."),
    ],
)
def test_what_stands_around_an_answer_is_removed(answer, prompt, names, stripped):
    assert strip_other_text(answer, prompt, names) == stripped
    assert set(names) <= set(other_text(answer, prompt)) or answer == stripped
    prompts = pd.DataFrame({"prompt_id": ["a"], "text": [prompt]})
    table = response_batch(prompts, [answer], strip=names)
    assert table["response"].tolist() == [stripped]
    assert table["other_text"][0] == ("verdict" if answer == stripped else "")


def test_removing_leaves_ordinary_answers_alone():
    names = [name for name in removable() if name != "fence"]
    changed = [
        row["text"]
        for row in ROWS
        if not row["kind"] and strip_other_text(row["text"], "", names) != row["text"].strip()
    ]
    assert len(changed) <= 0.01 * len(ROWS)


def test_only_kinds_that_can_be_removed_are_accepted():
    with pytest.raises(ValidationError, match="strip: 'verdicts'.*verdict"):
        ModelSettings(name="m", strip=["verdicts"])
    with pytest.raises(ValidationError, match="strip"):
        ModelSettings(name="m", strip=["sheet"])
    assert ModelSettings(name="m", strip=["verdict"]).strip == ["verdict"]


def test_words_whose_bytes_are_characters_by_chance_stay():
    for text in ("»MENÜ«", "NÃO", "ÉTÉ »", "20 °C", "½ Liter", "São Paulo", "Ünal Ö.", "naïve Zoë"):
        assert repaired(text) == text


@pytest.mark.parametrize("piece", ["\t \n", "<a ", "[", "1.", "a\n ", "'a'", "…", "<", "- "])
def test_a_hostile_answer_does_not_stop_the_run(piece):
    """With a quadratic pattern, an answer of 300,000 characters takes hours."""
    assert isinstance(other_text(piece * 100_000, "I'm old. May I sit?"), list)
