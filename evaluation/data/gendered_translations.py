"""Gendered reference translations: masculine and feminine translations of English sentences.

A table has one row per reference, which is masculine, feminine, neutral (it fits both genders of a language that has
genders) or generic (the language does not mark gender here), as in MultilingualHolisticBias (Costa-jussà et al. 2023,
Costa-jussà et al. 2023). Tables are read from MMHB, the successor of MultilingualHolisticBias, from MT-GenEval (Currey
et al. 2022, github.com/amazon-science/machine-translation-gender-eval), or from a user's CSV file.
"""

import ast
import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.data.table_files import parse_csv
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE

SENTENCE_ID, ENGLISH, LANG = "sentence_id", "english", "lang"
GENDER, REFERENCE, MARKED = "gender", "reference", "marked"
TAKEN_FROM = "taken_from"  # the gender of a reference that replaces a missing one
MASCULINE, FEMININE, NEUTRAL, GENERIC = GENDERS = ("masculine", "feminine", "neutral", "generic")
COLUMNS = [SENTENCE_ID, AXIS, DESCRIPTOR, TEMPLATE, ENGLISH, LANG, GENDER, REFERENCE, MARKED]
REQUIRED_COLUMNS = (ENGLISH, LANG, GENDER, REFERENCE)

LANGUAGES = Path(__file__).parent / "files" / "languages_50.csv"
MIN_MASCULINE_REFERENCES = 100  # Costa-jussà et al. 2023, §4.1
# Gender → MMHB's column of references; `both` has translations that fit either gender.
MMHB_GENDERS = {MASCULINE: "masculine", FEMININE: "feminine", NEUTRAL: "both"}
MMHB_COLUMNS = ("sentence_eng", "pattern_id_main", "noun_id_main", "desc_id_main", "lang", *MMHB_GENDERS.values())
MARK = re.compile(r"</?\s*([MF])\s*>", re.IGNORECASE)
MARKED_SPAN = re.compile(r"<\s*([MF])\s*>(.*?)<\s*/\s*\1\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Language:
    """A language: `code` is its FLORES code ("spa_Latn"), `short` its two-letter code ("es", or "" without one)."""

    code: str
    name: str
    short: str


ENGLISH_LANGUAGE = Language("eng_Latn", "English", "en")


def load_languages() -> list[Language]:
    """Return the 50 languages of MultilingualHolisticBias (Costa-jussà et al. 2023, Table 4), without English."""
    with LANGUAGES.open(encoding="utf-8", newline="") as file:
        return [Language(*row) for row in list(csv.reader(file))[1:]]


@cache
def language_name(code: str) -> str:
    """Return the English name of a language, or its code (at most 40 characters) if it is unknown."""
    return {it.code: it.name for it in (*load_languages(), ENGLISH_LANGUAGE)}.get(code, code[:40])


def find_language(code: str, field: str = "lang") -> Language:
    """Return the language with a FLORES or two-letter code: English or one of the 50 languages of `load_languages`.

    Raises:
        InputError: the code is unknown; the message names the setting `field`.
    >>> find_language("es").code
    'spa_Latn'
    """
    by_code = {
        name: language
        for language in (ENGLISH_LANGUAGE, *load_languages())
        for name in (language.code, language.short)
        if name
    }
    if code not in by_code:
        raise unknown_name(field, code, by_code)
    return by_code[code]


def read_references(path: Path) -> pd.DataFrame:
    """Return the references of a CSV file with the columns english, lang, gender and reference.

    Optional columns are sentence_id (by default, the distinct English sentences are numbered from 1), axis, descriptor
    and template (by default ""), and marked: a JSON list of the gender-marked spans of the reference, an empty field if
    the spans are unknown. Rows with an empty reference are left out.

    Returns:
        a table with the columns sentence_id, axis, descriptor, template, english, lang, gender, reference and marked (a
        list, or None).

    Raises:
        InputError: the file cannot be read, a column is missing, a gender, language code or `marked` is invalid, or one
            sentence_id has several axes, descriptors or templates.
    """
    rows = _read_table(path, ",", REQUIRED_COLUMNS)
    for name in (AXIS, DESCRIPTOR, TEMPLATE, MARKED):
        if name not in rows:
            rows[name] = ""
    if SENTENCE_ID not in rows:
        rows[SENTENCE_ID] = [str(code + 1) for code in pd.factorize(rows[ENGLISH])[0]]
    for gender in rows[GENDER].unique():
        if gender not in GENDERS:
            raise unknown_name(f"{path}: gender", gender, GENDERS)
    rows[MARKED] = pd.Series([_parse_marked(path, row, text) for row, text in enumerate(rows[MARKED], 2)], dtype=object)
    return _check_references(path, rows[rows[REFERENCE] != ""])


def read_mmhb(path: Path, axes: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the references of an MMHB sentence file, `mmhb_dataset/{lang}/{train,dev,devtest}.csv`.

    Fields are separated by tabs; `masculine`, `feminine` and `both` (neutral here) are Python lists of sentences, or
    empty. Descriptors and templates are MMHB's ids; a sentence_id consists of the ids of template, noun and descriptor
    and the English text.

    Args:
        axes: descriptor id → axis (`read_mmhb_axes`); the axis of other descriptors is "".

    Returns:
        The columns of `read_references`; marked is None.

    Raises:
        InputError: the file cannot be read, lacks a column, or a cell is not a list of sentences.
    """
    rows = _read_table(path, "\t", MMHB_COLUMNS)
    axes, references = axes or {}, []
    for line, row in enumerate(rows.to_dict("records"), start=2):
        ids = [row[name] for name in ("pattern_id_main", "noun_id_main", "desc_id_main")]
        metadata = {
            SENTENCE_ID: "/".join([*ids, row["sentence_eng"]]),
            AXIS: axes.get(ids[2], ""),
            DESCRIPTOR: ids[2],
            TEMPLATE: ids[0],
            ENGLISH: row["sentence_eng"],
            LANG: row["lang"],
        }
        for gender, column in MMHB_GENDERS.items():
            for text in _parse_sentences(path, line, column, row[column]):
                references.append(metadata | {GENDER: gender, REFERENCE: text, MARKED: None})
    return _check_references(path, pd.DataFrame(references, columns=COLUMNS))


def read_mmhb_axes(path: Path) -> dict[str, str]:
    """Return the axis of each descriptor, descriptor id → axis, from MMHB's file `{lang}_descriptors_full_id.tsv`.

    Ids are included with and without their last letter, which distinguishes forms of a descriptor: "P_D001a", "P_D001".

    Raises:
        InputError: the file cannot be read or lacks the columns ID and HB AXIS.
    """
    rows = _read_table(path, "\t", ("ID", "HB AXIS"))
    pairs = list(zip(rows["ID"], rows["HB AXIS"], strict=True))
    return dict([(re.sub(r"(?<=\d)[a-z]$", "", name), axis) for name, axis in pairs] + pairs)


def read_mt_geneval(folder: Path, lang: str, split: str = "dev") -> pd.DataFrame:
    """Return MT-GenEval's counterfactual sentences, each in a masculine and a feminine version, with translations.

    Source: Currey et al. (2022), §3.1. The English versions differ too, because English marks the gender in these
    sentences. The files of MT-GenEval's folder `annotated` have tags for gender-marked spans, `<F>ella</F>`; other
    files can have stray tags. Spans are therefore known only if most lines in the files of both genders have a tag.
    Tags are removed; square brackets ("[citation needed]") are text and stay.

    Args:
        folder: contains geneval-sentences-{masculine,feminine}-{split}.en_{lang}.{en,lang}, with one sentence per line.
        lang: a two-letter code or FLORES code.
        split: "dev" or "test".

    Returns:
        The columns of `read_references`, sentence_id as "en_es/1"; axis, descriptor and template are "".

    Raises:
        InputError: a file is missing, or the four files differ in their number of lines.
    """
    language = find_language(lang)
    texts = {}
    for gender in (MASCULINE, FEMININE):
        for code in ("en", language.short):
            name = f"geneval-sentences-{gender}-{split}.en_{language.short}.{code}"
            texts[gender, code] = read_lines(folder / name)
    counts = {len(lines) for lines in texts.values()}
    if len(counts) > 1:
        raise InputError(f"{folder}: the files of {lang} have {sorted(counts)} lines; give files of equal length.")
    is_annotated = all(_mostly_tagged(texts[gender, language.short]) for gender in (MASCULINE, FEMININE))
    references = [
        {
            SENTENCE_ID: f"en_{language.short}/{number}",
            **dict.fromkeys((AXIS, DESCRIPTOR, TEMPLATE), ""),
            ENGLISH: MARK.sub("", english).strip(),
            LANG: language.code,
            GENDER: gender,
            REFERENCE: MARK.sub("", reference).strip(),
            MARKED: [span.strip() for _, span in MARKED_SPAN.findall(reference)] if is_annotated else None,
        }
        for gender in (MASCULINE, FEMININE)
        for number, (english, reference) in enumerate(
            zip(texts[gender, "en"], texts[gender, language.short], strict=True), start=1
        )
    ]
    return pd.DataFrame(references, columns=COLUMNS)


def _mostly_tagged(lines: Sequence[str]) -> bool:
    """Return whether most lines have a tagged span; a file without annotation can have stray tags."""
    return 2 * sum(MARKED_SPAN.search(line) is not None for line in lines) > len(lines)


@dataclass(frozen=True)
class ComparableSets:
    """Masculine and feminine references of the same sentences.

    Attributes:
        table: the columns of `read_references` with gender masculine or feminine, and taken_from, the gender of the
            actual reference, which differs from `gender` if a missing reference was replaced.
        languages: a row per language with lang; sentences, the number of sentences; masculine and feminine, the numbers
            of sentences with a reference of that gender; replaced_masculine and replaced_feminine, the numbers of
            sentences with a neutral or generic reference instead; missing, the number of sentences that are left out
            because a gender has no reference at all; and left_out, the reason why the language is not in `table`, or
            None.
    """

    table: pd.DataFrame
    languages: pd.DataFrame


def build_comparable_sets(
    references: pd.DataFrame, min_masculine_references: int = MIN_MASCULINE_REFERENCES
) -> ComparableSets:
    """Return masculine and feminine references of the same sentences (Costa-jussà et al. 2023, §4.1).

    A missing masculine or feminine reference is replaced by the neutral reference of the sentence, else by the generic
    reference. Languages are left out if fewer than `min_masculine_references` sentences have a masculine reference.

    Args:
        references: the columns of `read_references`.
        min_masculine_references: 100 in the paper; with 0, no language is left out.

    Raises:
        InputError: all languages are left out.
    """
    parts, rows = [], []
    for lang, lang_rows in references.groupby(LANG, sort=True):
        ids = {gender: set(lang_rows.loc[lang_rows[GENDER] == gender, SENTENCE_ID]) for gender in GENDERS}
        usable = {gender: ids[gender] | ids[NEUTRAL] | ids[GENERIC] for gender in (MASCULINE, FEMININE)}
        both = usable[MASCULINE] & usable[FEMININE]
        too_few = len(ids[MASCULINE]) < min_masculine_references
        row = {LANG: lang, "sentences": lang_rows[SENTENCE_ID].nunique()}
        row |= {gender: len(ids[gender]) for gender in usable}
        row |= {f"replaced_{gender}": len(both - ids[gender]) for gender in usable}
        row |= {"missing": row["sentences"] - len(both)}
        row |= {"left_out": f"fewer than {min_masculine_references} masculine references" if too_few else None}
        rows.append(row)
        if not too_few:
            parts += [_select_references(lang_rows[lang_rows[SENTENCE_ID].isin(both)], gender) for gender in usable]
    if not parts or not sum(map(len, parts)):
        counts = ", ".join(f"{row[LANG]} {row[MASCULINE]}" for row in rows)
        raise InputError(
            f"min_masculine_references: no language has sentences to compare and {min_masculine_references} masculine "
            f"references ({counts or 'the table is empty'}); add references, or lower it."
        )
    languages = pd.DataFrame(rows).astype({"left_out": object}).replace({"left_out": {np.nan: None}})
    return ComparableSets(pd.concat(parts, ignore_index=True), languages)


def select_source_sentences(table: pd.DataFrame, *, source: str, target: str) -> pd.DataFrame:
    """Return the sentences to translate from one language into another (Costa-jussà et al. 2023, §4.3, §4.4).

    An English sentence with the same text for both genders is ambiguous and is translated once. Sentences in another
    language, and English sentences with two versions (MT-GenEval), are translated once for each gender.

    Args:
        table: `ComparableSets.table`.
        source, target: FLORES codes; one of them can be "eng_Latn".

    Returns:
        a table with the columns sentence_id, axis, descriptor, template, gender ("" if ambiguous) and text, the first
        reference if a sentence has several.

    Raises:
        InputError: the table lacks one of the languages, or the languages are equal.
    """
    if source == target:
        raise InputError(f"target: {target!r} is the source language too; give another.")
    from_english = source == ENGLISH_LANGUAGE.code
    rows = select_language(table, target if from_english else source)
    if not from_english and target != ENGLISH_LANGUAGE.code:
        rows = rows[rows[SENTENCE_ID].isin(select_language(table, target)[SENTENCE_ID])]
    texts = rows.rename(columns={ENGLISH if from_english else REFERENCE: "text"})
    texts = texts.drop_duplicates([SENTENCE_ID, GENDER])[[SENTENCE_ID, AXIS, DESCRIPTOR, TEMPLATE, GENDER, "text"]]
    if from_english:
        ambiguous = texts.groupby(SENTENCE_ID)["text"].transform("nunique") == 1
        texts.loc[ambiguous, GENDER] = ""
        texts = texts.drop_duplicates([SENTENCE_ID, GENDER])
    return texts.reset_index(drop=True)


def select_language(table: pd.DataFrame, lang: str) -> pd.DataFrame:
    """Return the rows of a table of references that are in the language `lang`, a FLORES code.

    Raises:
        InputError: the table has no row of the language.
    """
    rows = table[table[LANG] == lang]
    if rows.empty:
        raise unknown_name("lang", lang, set(table[LANG]))
    return rows


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8, split only at line feeds.

    Raises:
        InputError: the file cannot be read or is not UTF-8.
    """
    lines = _read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_translations(path: Path, expected: int) -> list[str]:
    """Return the translations in a text file with one line for each source sentence; a line may be empty.

    Raises:
        InputError: the file cannot be read, or its number of lines is not `expected`.
    """
    lines = read_lines(path)
    if len(lines) != expected:
        raise InputError(f"{path} has {len(lines)} lines for {expected} sentences; write one translation per line.")
    return [line.strip() for line in lines]


def _select_references(rows: pd.DataFrame, gender: str) -> pd.DataFrame:
    """Return each sentence's references of `gender`; if it has none, the neutral references, else the generic ones."""
    order = {name: rank for rank, name in enumerate((gender, NEUTRAL, GENERIC))}
    usable = rows[rows[GENDER].isin(order)]
    rank = usable[GENDER].map(order)
    best = usable[rank == rank.groupby(usable[SENTENCE_ID]).transform("min")]
    return best.assign(**{TAKEN_FROM: best[GENDER], GENDER: gender})


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (at byte {error.start}); save it as UTF-8.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); give a text file.") from None


def _read_table(path: Path, delimiter: str, required: Sequence[str]) -> pd.DataFrame:
    text = _read_text(path)
    try:
        table = pd.DataFrame(parse_csv(text, delimiter), dtype=object)
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a table ({error}); write a header and full rows.") from None
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{path} has no column {missing[0]!r}, only {', '.join(map(str, table))}; add it.")
    return table


def _parse_sentences(path: Path, line: int, column: str, cell: str) -> list[str]:
    """Return the sentences in a cell of an MMHB file; [] for "" and for the missing values written by pandas."""
    if cell.strip() in ("", "nan", "None"):
        return []
    try:
        sentences = ast.literal_eval(cell)
        if not isinstance(sentences, list) or not all(isinstance(text, str) for text in sentences):
            raise ValueError
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(
            f"{path}: {column} in row {line} is {cell[:60]!r}; write a Python list of sentences, or leave it empty."
        ) from None
    return [text for text in sentences if text.strip()]


def _parse_marked(path: Path, row: int, cell: str) -> list[str] | None:
    if not cell:
        return None
    try:
        spans = json.loads(cell)
    except ValueError:
        spans = None
    if not isinstance(spans, list) or not all(isinstance(span, str) for span in spans):
        raise InputError(f"{path}: marked in row {row} is {cell!r}; write a JSON list of spans, or leave it empty.")
    return spans


def _check_references(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        raise InputError(f"{path} has no reference; write one in each row.")
    for code in table[LANG].unique():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", code):  # it becomes part of file names
            raise InputError(f"{path}: lang {code!r} is no language code; write a code such as spa_Latn.")
    for name in (AXIS, DESCRIPTOR, TEMPLATE):
        several = table.groupby(SENTENCE_ID, sort=False)[name].nunique().gt(1)
        if several.any():
            raise InputError(f"{path}: sentence_id {several.idxmax()!r} has several values of {name}; give it one.")
    return table[COLUMNS].reset_index(drop=True)
