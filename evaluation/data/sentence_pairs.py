"""Sentence pairs: two sentences about different groups, of which `more` agrees with a stereotype more than `less`.

Sources: CrowS-Pairs (Nangia et al. 2020, github.com/nyu-mll/crows-pairs) and its translation with names instead of
pronouns (Steinborn et al. 2022, §3.1, github.com/VSteinborn/s_jsd-multilingual-bias), both at pinned commits and under
CC-BY-SA-4.0; or a user's CSV or JSONL file, perhaps in a new language.
"""

import json
from collections.abc import Mapping
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, TypeAdapter

from evenhand.evaluation import columns
from evenhand.evaluation.data.downloads import fetch_pinned_file
from evenhand.evaluation.data.readers.cells import name_text
from evenhand.evaluation.data.readers.table_files import (
    SUFFIXES,
    columns_of,
    decode_text,
    is_json,
    read_columns,
    read_json_rows,
)
from evenhand.evaluation.data.winobias import winobias_files, winobias_rows
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.files import load_yaml, read_yaml

CROWS_PAIRS = "https://raw.githubusercontent.com/nyu-mll/crows-pairs/8aaac11c485473159ec9328a65253a5be9a479dc/data"
S_JSD = (
    "https://raw.githubusercontent.com/VSteinborn/s_jsd-multilingual-bias/b10302047b55043004a0280f8c2f63236ccea878/data"
)
# SHA-256 of each file at its commit.
CROWS_PAIRS_SHA256 = "dfb36986ce0502abbaf7055b9176da3d08d48e07df1251991b5dfbcbceab9d0c"
S_JSD_SHA256 = {
    "ar": "172a8ad57c5b25647cd91affa7e3472d06dcdcbd783a129aa38dfd148a9c8665",
    "de": "68495e0185780c8a47fc4d999a1774f5718be8654c8926f67f97d4f4b5ba1630",
    "en": "e965762fa00af7648e5146c504fdd4940b7cf9703f85394257aaaf70d8c28d0c",
    "fi": "a20b411b62b7f8255381429475c90b8205425dff8c6d0f4845b604cf106b6a1d",
    "fr": "a50e0f3cca8b7acfeb0a618bb67032d9c592d00e7ea4bff7b54c36640f7d8201",
    "id": "669d2c8477786e5c278081bcc3192a432feb8ffab57fd623d0c1c77fc6e2c31b",
    "ko": "6c8e90c6bd113bdbd719860b87f0baffc0d4729b4a3032452073e1af1d078dc2",
    "th": "34a86c49aa89f6c699ea481b530ab894c27373b73d080d1f0069a0041823299b",
    "vi": "e724d536191dd6d1e4eed83748a4285af50a98c1d5c263be650bd56f0ee970c5",
    "zh": "d92b05b1bebfd59b7d2d3db1d8d435e9915e5713d8e03b52e6ba5942ff5f6066",
}
SETS = ("crows_pairs", *(f"s_jsd_{language}" for language in S_JSD_SHA256))

COLUMNS = (columns.PAIR_ID, columns.BIAS_TYPE, columns.DIRECTION, columns.MORE, columns.LESS)
# Our column names, and the names in CrowS-Pairs, whose first column has no name, and in the files of Steinborn et al.
# 2022.
KNOWN_COLUMNS = (
    {name: name for name in COLUMNS},
    {
        columns.MORE: "sent_more",
        columns.LESS: "sent_less",
        columns.PAIR_ID: "",
        columns.BIAS_TYPE: "bias_type",
        columns.DIRECTION: "stereo_antistereo",
    },
    {columns.MORE: "A_x", columns.LESS: "B_x", columns.PAIR_ID: "ID", columns.DIRECTION: "stereo_antistereo"},
)
MISSING_SENTENCE = "a sentence is missing"
EQUAL_SENTENCES = "the two sentences are equal"
FEW_SHARED = "fewer than {} words are shared"
SHORT = "a sentence has fewer than {} words"
DEFECTS = Path(__file__).parent / "files" / "crows_pairs_defects.csv"
DUPLICATE = "duplicate of pair"  # starts a defect
STEREOSET_LABELS = {name: name for name in ("stereotype", "anti-stereotype", "unrelated")}
STEREOSET_LABELS |= {0: "anti-stereotype", 1: "stereotype", 2: "unrelated"}
NAMES = Path(__file__).parent / "files" / "names.yaml"
Names = dict[Literal["female", "male"], Annotated[list[str], Field(min_length=1)]]


def resolve_pairs_file(source: str) -> Path:
    """Return the path of a published set, downloaded if it is not in the cache, or the path of a user's file.

    Raises:
        InputError: `source` is neither a known set nor a file, or the download fails.
    """
    if source in SETS:
        fix = f"give the path of the file with {spelled('sentence_pairs.pairs')}."
        name = "crows_pairs_anonymized.csv"
        url = CROWS_PAIRS
        sha256 = CROWS_PAIRS_SHA256
        if source != "crows_pairs":
            language = source.removeprefix("s_jsd_")
            name = f"cps_translated_{language}_formatted.csv"
            url = S_JSD
            sha256 = S_JSD_SHA256[language]
        return fetch_pinned_file(f"{url}/{name}", sha256, f"sentence_pairs/{name}", fix)
    path = Path(source).expanduser()
    if not path.is_file() and not winobias_files(path):
        if path.suffix.lower() in SUFFIXES:
            raise InputError("pairs", f"{source} does not exist; give a CSV or JSONL file, or {', '.join(SETS)}.")
        raise unknown_name("pairs", source, SETS)
    return path


def read_sentence_pairs(path: Path, listed: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the sentence pairs in a file, one row per pair.

    The columns are pair_id, bias_type, direction, more, less and left_out, which is a reason if a sentence is missing,
    else None. By default, `pair_id` is the number of the row, and `bias_type` and `direction` are "".

    Args:
        path: a CSV or JSONL file in UTF-8, with the columns of CrowS-Pairs, of Steinborn et al. 2022's files, or ours;
            or the folder of WinoBias's files, or one of them.
        listed: our name → the file's name of a column, for any of "more", "less", "bias_type", "direction", "pair_id".

    Raises:
        InputError: the file cannot be read or is not UTF-8, a column is missing, a sentence is blank, a pair_id occurs
            twice, or no pair has both sentences.
    """
    spelled = {column for known in KNOWN_COLUMNS for column in known.values()}
    rows = winobias_rows(path)
    if rows is None:
        rows = stereoset_rows(path)
    known = {*spelled, *(listed or {}).values()} - {""}
    content = read_columns(path, "sentence pairs", known=known) if rows is None else columns_of(rows)
    if not content:
        raise InputError(path, "is empty; give a file with a row for each pair.")
    names = _resolve_columns(path, list(content), listed or {})
    n = len(content[names[columns.MORE]])
    pairs = pd.DataFrame({name: content[names[name]] if name in names else [""] * n for name in COLUMNS}, dtype=object)
    if columns.PAIR_ID not in names:
        pairs[columns.PAIR_ID] = range(1, n + 1)
    # Only empty fields are missing: "None" and "null" can be sentences.
    for name in (columns.MORE, columns.LESS):
        pairs[name] = pd.Series([None if text == "" else text for text in pairs[name]], dtype=object)
        for text in pairs[name]:
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise InputError(path, f"{text!r} is no sentence; write one, or leave it out.")
    for name in (columns.PAIR_ID, columns.BIAS_TYPE, columns.DIRECTION):
        pairs[name] = pd.Series(["" if value is None else name_text(value) for value in pairs[name]], dtype=object)
    if pairs[columns.PAIR_ID].duplicated().any():
        raise InputError(
            path, f"{names[columns.PAIR_ID]} {pairs[columns.PAIR_ID].mode()[0]!r} occurs twice; change one."
        )
    missing = pairs[[columns.MORE, columns.LESS]].isna().any(axis=1)
    if missing.all():
        raise InputError(
            path, f"no row has both {names[columns.MORE]} and {names[columns.LESS]}; write both sentences of a pair."
        )
    pairs[columns.LEFT_OUT] = pd.Series(
        [MISSING_SENTENCE if is_missing else None for is_missing in missing], dtype=object
    )
    return pairs


def stereoset_rows(path: Path) -> list[dict[str, str]] | None:
    """Return the pairs in a file of StereoSet (Nadeem et al. 2021), which has three sentences each; None for another.

    The stereotype is `more` and the anti-stereotype `less`; the unrelated sentence is left out. A sentence that
    continues a context follows it. The file is the published JSON, or has its examples one a line, where the labels may
    be numbers (0: anti-stereotype, 1: stereotype, 2: unrelated).
    """
    if not is_json(path):
        return None
    try:
        text = decode_text(path)
        if '"gold_label"' not in text:
            return None
        content = json.loads(text) if path.suffix.lower() == ".json" else read_json_rows(path)
    except (OSError, ValueError, RecursionError):  # the reader of tables reports the error
        return None
    data = content.get("data", content) if isinstance(content, dict) else content
    examples_by_kind = data if isinstance(data, dict) else {"": data}
    rows = []
    for kind, examples in examples_by_kind.items():
        if not isinstance(examples, list):
            raise _stereoset_error(path, examples)
        rows += [_stereoset_row(path, kind, example) for example in examples]
    return rows


def _stereoset_error(path: Path, example: object) -> InputError:
    return InputError(
        path,
        f"{format_value(example)} is no example of StereoSet; give id, context and three sentences with gold_label.",
    )


def _stereoset_row(path: Path, kind: str, example: Mapping[str, Any]) -> dict[str, str]:
    """Return the pair of an example of StereoSet; `kind` is "intrasentence", "intersentence", or "" if unknown."""
    try:
        sentences = example["sentences"]
        if isinstance(sentences, Mapping):
            labels = sentences["gold_label"]
            texts = sentences["sentence"]
        else:
            labels = [sentence["gold_label"] for sentence in sentences]
            texts = [sentence["sentence"] for sentence in sentences]
        found = {STEREOSET_LABELS[label]: text for label, text in zip(labels, texts, strict=True)}
        is_continued = kind == "intersentence" or "BLANK" not in example["context"]
        context = f"{example['context']} " if is_continued else ""
        pair = {columns.MORE: context + found["stereotype"], columns.LESS: context + found["anti-stereotype"]}
        return {
            columns.PAIR_ID: str(example["id"]),
            columns.BIAS_TYPE: str(example.get("bias_type", "")),
            columns.DIRECTION: kind,
            **pair,
        }
    except (KeyError, TypeError, ValueError):
        raise _stereoset_error(path, example) from None


def known_defects(pairs: pd.DataFrame) -> list[str | None]:
    """Return the known defect of each pair of CrowS-Pairs, in any file; None for a pair without one.

    The list is `files/crows_pairs_defects.csv`: a duplicate, of which the first stays, pairs that differ in more than
    the group or in their final punctuation, and pairs with stray spaces. White space does not count when pairs are
    recognised.
    """
    table = read_columns(DEFECTS, "known defects")
    defects = dict(zip(table["sentences"], table["defect"], strict=True))
    found = []
    seen = set()
    for more, less in zip(pairs[columns.MORE], pairs[columns.LESS], strict=True):
        key = _pair_key(more, less) if isinstance(more, str) and isinstance(less, str) else ""
        defect = defects.get(key)
        is_first = key not in seen
        found.append(None if defect is None or (defect.startswith(DUPLICATE) and is_first) else defect)
        seen.add(key)
    return found


def _pair_key(more: str, less: str) -> str:
    """Return the name of a pair in the list of known defects: 16 hexadecimal digits of a hash of its sentences."""
    text = "\n".join(" ".join(sentence.split()) for sentence in (more, less))
    return sha256(text.encode("utf-8")).hexdigest()[:16]


def load_names(source: str) -> Names:
    """Return names by gender, {"female": […], "male": […]}, of a language ("de") or in a user's YAML file.

    Raises:
        InputError: `source` is neither, or the file has another content.
    """
    shipped = load_yaml(NAMES.read_text(encoding="utf-8"))
    if source not in shipped and not Path(source).is_file():
        raise unknown_name("names", source, shipped)
    names = shipped[source] if source in shipped else read_yaml(Path(source), "names")
    try:
        return TypeAdapter(Names).validate_python(names)
    except ValueError:
        raise InputError("names", f"{source} lacks names; write `female: [NAME, …]` and `male: [NAME, …]`.") from None


def insert_names(pairs: pd.DataFrame, names: Names) -> pd.DataFrame:
    """Return the pairs with {female} and {male} replaced by names, which take turns from pair to pair.

    Names mark gender also in languages whose pronouns do not (Steinborn et al. 2022, §3.1).

    >>> pairs = pd.DataFrame({"more": ["{male} flies."] * 2, "less": ["{female} flies."] * 2})
    >>> insert_names(pairs, {"female": ["Ana"], "male": ["Luis", "José"]})["more"].tolist()
    ['Luis flies.', 'José flies.']
    """

    def insert(text: str | None, row: int) -> str | None:
        if text is None:
            return None
        for gender, gender_names in names.items():
            text = text.replace(f"{{{gender}}}", gender_names[row % len(gender_names)])
        return text

    named = pairs.copy()
    for side in (columns.MORE, columns.LESS):
        texts = [insert(text, row) for row, text in enumerate(pairs[side])]
        named[side] = pd.Series(texts, dtype=object)
    return named


def leave_out_pairs(pairs: pd.DataFrame, min_shared_words: int, min_words: int) -> pd.DataFrame:
    """Return the pairs with a reason in left_out if they are equal, share too few words or have a short sentence.

    Source: Steinborn et al. 2022, §3.1: two equal sentences are useless, and long sentences share words. White space
    separates words. Reasons that are already in left_out stay.
    """

    def reason(more: str, less: str) -> str | None:
        more_words = more.split()
        less_words = less.split()
        if more == less:
            return EQUAL_SENTENCES
        if min(len(more_words), len(less_words)) < min_words:
            return SHORT.format(min_words)
        blocks = SequenceMatcher(None, more_words, less_words, autojunk=False).get_matching_blocks()
        n_shared = sum(block.size for block in blocks)
        return FEW_SHARED.format(min_shared_words) if n_shared < min_shared_words else None

    reasons = [
        known or reason(more, less)
        for known, more, less in zip(pairs[columns.LEFT_OUT], pairs[columns.MORE], pairs[columns.LESS], strict=True)
    ]
    marked = pairs.copy()
    marked[columns.LEFT_OUT] = pd.Series(reasons, dtype=object)
    return marked


def perturb(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs without the last character of each sentence (Steinborn et al. 2022, Table 3)."""
    shortened = pairs.copy()
    for side in (columns.MORE, columns.LESS):
        texts = [None if text is None else text[:-1] for text in pairs[side]]
        shortened[side] = pd.Series(texts, dtype=object)
    return shortened


def _resolve_columns(path: Path, present: list[str], listed: Mapping[str, str]) -> dict[str, str]:
    """Return our name → the file's name of each column that the file has; `listed` are the names that a user gives."""
    default = {columns.MORE: columns.MORE, columns.LESS: columns.LESS}
    known = next(
        (names for names in KNOWN_COLUMNS if {names[columns.MORE], names[columns.LESS]} <= {*present}), default
    )
    names = {name: column for name, column in known.items() if column in present} | dict(listed)
    if missing := [
        names.get(name, name) for name in (columns.MORE, columns.LESS, *listed) if names.get(name) not in present
    ]:
        raise InputError(
            path,
            f"has no column {missing[0]!r}, only {', '.join(present)}; name the columns by "
            f"{spelled('sentence_pairs.columns', '{more: …, less: …}')}.",
        )
    return names
