"""Values where others belong, and the smallest taxonomy that prompts can be made of."""

import datetime
import json
import math
from pathlib import Path
from typing import Any

DEEP: Any = []
for _ in range(50):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 10**30, 10**400, 0.5, -0.0, math.nan, math.inf, -math.inf, 1e308),
    *("", " ", "x", "null", "-1", "nan", "a\nb", "\x00", "../..", "~/x", "/dev/null/x", "x" * 5000, "9" * 5000),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 1, 1), b"\xff"),
    *([], [None], ["x", 1], [[]], [math.nan], ["x"] * 3, [{}], DEEP, {}, {"x": None}, {1: 2}, {"name": 5}, {None: []}),
    *({"name": None}, {"axis": datetime.date(2020, 1, 1)}, {"x": {"y": math.inf}}, {1: "a", "b": 0, None: "c"}),
    *({"x": b"\xff"}, {"before": 3, "name": 5}, {"x": [10**400]}),
)

TINY_TAXONOMY = {
    "descriptors": {"age": {"young": ["young", "teenage"], "old": ["elderly"]}, "ability": {"any": ["Deaf", "blind"]}},
    "nouns": {"neutral": [["kid", "kids"], ["person", "people"]], "female": [["aunt", "aunts"], ["mom", "moms"]]},
    "sentence_templates": {"I'm {noun_phrase}.": {}, "I like {plural_noun_phrase}.": {}},
    "standalone_noun_phrases": {"ability": [{"noun_phrase": "{article} {noun} with low vision"}]},
}


def written_taxonomy(folder: Path, files: dict[str, Any]) -> Path:
    """Write a taxonomy's four files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


# Contents that are no text, or none of the format they are called by.
NO_TEXT = (b"", b"\n", b"\x00" * 9, b"\xff\xfe\x00", b"\x80abc", b"PAR1" * 4, b"[" * 20000, b"null", b"[]", b"{}", b"1")
ODD_JSON: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 0.5, math.nan, math.inf, "", " ", "x", "null", "../..", "\x00", "\ud800", "a\nb"),
    *([], [None], ["x", 1], [[]], {}, {"x": None}, {"name": 5}, [{}], DEEP, "x" * 5000, "2020-01-01"),
)
