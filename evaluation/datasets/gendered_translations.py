"""Gendered reference translations: one English sentence, a masculine and a feminine translation of it.

The form of MultilingualHolisticBias (papers 003 and 004, Costa-jussà et al. 2023): a table with one row per reference,
which is masculine, feminine, neutral (it fits both where the language has genders) or generic (the language does not
mark gender here). Read from the sentence files of its successor MMHB, from MT-GenEval (Currey et al. 2022,
github.com/amazon-science/machine-translation-gender-eval) or from a CSV file of the user's.
"""

import ast
import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.table_files import parse_csv
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE

SENTENCE_ID, ENGLISH, LANG = "sentence_id", "english", "lang"
GENDER, REFERENCE, MARKED = "gender", "reference", "marked"
TAKEN_FROM = "taken_from"  # the gender of the reference that stands in for a missing one
MASCULINE, FEMININE, NEUTRAL, GENERIC = GENDERS = ("masculine", "feminine", "neutral", "generic")
COLUMNS = [SENTENCE_ID, AXIS, DESCRIPTOR, TEMPLATE, ENGLISH, LANG, GENDER, REFERENCE, MARKED]
NEEDED = (ENGLISH, LANG, GENDER, REFERENCE)

LANGUAGES = Path(__file__).parent / "data" / "languages_50.csv"
MIN_MASCULINE_REFERENCES = 100  # paper 004, §4.1
# MMHB's columns of references, by our genders: `both` holds translations that fit either.
OF_MMHB = {MASCULINE: "masculine", FEMININE: "feminine", NEUTRAL: "both"}
MMHB_COLUMNS = ("sentence_eng", "pattern_id_main", "noun_id_main", "desc_id_main", "lang", *OF_MMHB.values())
MARK = re.compile(r"</?\s*([MF])\s*>", re.IGNORECASE)
MARKED_SPAN = re.compile(r"<\s*([MF])\s*>(.*?)<\s*/\s*\1\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Language:
    """A language by its FLORES code ("spa_Latn"); `short` is its two-letter code ("es"), "" if it has none."""

    code: str
    name: str
    short: str


ENGLISH_LANGUAGE = Language("eng_Latn", "English", "en")


def languages() -> list[Language]:
    """Return the 50 languages of MultilingualHolisticBias (004, Table 4), without English."""
    with LANGUAGES.open(encoding="utf-8", newline="") as file:
        return [Language(*row) for row in list(csv.reader(file))[1:]]


def language(code: str, field: str = "lang") -> Language:
    """Return a language of the paper, or English, by its FLORES code or its two-letter code; `field` is who named it.

    Raises:
        InputError: it is none of them; the code that was likely meant is named.

    >>> language("es").code
    'spa_Latn'
    """
    known = {name: one for one in (ENGLISH_LANGUAGE, *languages()) for name in (one.code, one.short) if name}
    if code not in known:
        raise unknown_name(field, code, known)
    return known[code]


def read_references(path: Path) -> pd.DataFrame:
    """Return the references of a CSV file with the columns english, lang, gender and reference.

    It may have sentence_id (else the distinct English sentences are numbered from 1), axis, descriptor and template
    (else ""), and marked: a JSON list of the gender-marked spans of the reference, empty where they are not known. A
    row whose reference is empty is passed over: that reference is missing.

    Returns:
        sentence_id, axis, descriptor, template, english, lang, gender, reference and marked (a list, or None).

    Raises:
        InputError: the file cannot be read, a column is missing, a gender or `marked` is not what it must be, or one
            sentence_id has two axes, descriptors or templates.
    """
    rows = _read_table(path, ",", NEEDED)
    for name in (AXIS, DESCRIPTOR, TEMPLATE, MARKED):
        if name not in rows:
            rows[name] = ""
    if SENTENCE_ID not in rows:
        rows[SENTENCE_ID] = [str(code + 1) for code in pd.factorize(rows[ENGLISH])[0]]
    for gender in rows[GENDER].unique():
        if gender not in GENDERS:
            raise unknown_name(f"{path}: gender", gender, GENDERS)
    rows[MARKED] = pd.Series([_marked(path, row, text) for row, text in enumerate(rows[MARKED], 2)], dtype=object)
    return _checked(path, rows[rows[REFERENCE] != ""])


def read_mmhb(path: Path, axes: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the references of an MMHB sentence file, `mmhb_dataset/{lang}/{train,dev,devtest}.csv`.

    Fields are separated by tabs; `masculine`, `feminine` and `both` (here neutral) hold lists of sentences as Python
    writes them, and may be empty. Descriptors and templates are MMHB's ids; a sentence is known by the ids of its
    template, noun and descriptor and its English text.

    Args:
        path: the file.
        axes: descriptor id → axis (`mmhb_axes`); "" where it has none.

    Returns:
        The columns of `read_references`; marked is None.

    Raises:
        InputError: the file cannot be read, lacks a column, or a cell holds no list of sentences.
    """
    rows = _read_table(path, "\t", MMHB_COLUMNS)
    axes, references = axes or {}, []
    for line, row in enumerate(rows.to_dict("records"), start=2):
        ids = [row[name] for name in ("pattern_id_main", "noun_id_main", "desc_id_main")]
        facts = {
            SENTENCE_ID: "/".join([*ids, row["sentence_eng"]]),
            AXIS: axes.get(ids[2], ""),
            DESCRIPTOR: ids[2],
            TEMPLATE: ids[0],
            ENGLISH: row["sentence_eng"],
            LANG: row["lang"],
        }
        for gender, column in OF_MMHB.items():
            for text in _listed(path, line, column, row[column]):
                references.append(facts | {GENDER: gender, REFERENCE: text, MARKED: None})
    return _checked(path, pd.DataFrame(references, columns=COLUMNS))


def mmhb_axes(path: Path) -> dict[str, str]:
    """Return the axis of each descriptor id from one of MMHB's `{lang}_descriptors_full_id.tsv`.

    An id with its last letter, which tells forms of one descriptor apart, and without it: "P_D001a" and "P_D001".

    Raises:
        InputError: the file cannot be read or has no columns ID and HB AXIS.
    """
    rows = _read_table(path, "\t", ("ID", "HB AXIS"))
    pairs = list(zip(rows["ID"], rows["HB AXIS"], strict=True))
    return dict([(re.sub(r"(?<=\d)[a-z]$", "", name), axis) for name, axis in pairs] + pairs)


def read_mt_geneval(folder: Path, lang: str, split: str = "dev") -> pd.DataFrame:
    """Return the counterfactual sentences of MT-GenEval: each in a masculine and a feminine version, in both languages.

    Currey et al. (2022), §3.1. The English sentence says the gender, so the two versions of a sentence differ there
    too. Gender-marked spans are known where the files are those of the folder `annotated`, `<F>ella</F>`: where most
    lines of either gender's file have one, as others may hold a stray tag. The tags are taken out. Square brackets are
    the text's own ("[citation needed]") and stay.

    Args:
        folder: with geneval-sentences-{masculine,feminine}-{split}.en_{lang}.{en,lang}, a sentence per line.
        lang: a two-letter code or its FLORES code.
        split: "dev" or "test".

    Returns:
        The columns of `read_references`, sentence_id as "en_es/1"; axis, descriptor and template are "".

    Raises:
        InputError: a file is not there, or the four have not one number of lines.
    """
    known = language(lang)
    texts = {}
    for gender in (MASCULINE, FEMININE):
        for side in ("en", known.short):
            name = f"geneval-sentences-{gender}-{split}.en_{known.short}.{side}"
            texts[gender, side] = read_lines(folder / name)
    counts = {len(lines) for lines in texts.values()}
    if len(counts) > 1:
        raise InputError(f"{folder}: the files of {lang} have {sorted(counts)} lines; they must have as many each.")
    tagged = all(_mostly_tagged(texts[gender, known.short]) for gender in (MASCULINE, FEMININE))
    references = [
        {
            SENTENCE_ID: f"en_{known.short}/{number}",
            **dict.fromkeys((AXIS, DESCRIPTOR, TEMPLATE), ""),
            ENGLISH: MARK.sub("", english).strip(),
            LANG: known.code,
            GENDER: gender,
            REFERENCE: MARK.sub("", reference).strip(),
            MARKED: [span.strip() for _, span in MARKED_SPAN.findall(reference)] if tagged else None,
        }
        for gender in (MASCULINE, FEMININE)
        for number, (english, reference) in enumerate(
            zip(texts[gender, "en"], texts[gender, known.short], strict=True), start=1
        )
    ]
    return pd.DataFrame(references, columns=COLUMNS)


def _mostly_tagged(lines: Sequence[str]) -> bool:
    """Return whether most lines hold a tagged span: a file without annotation may have a stray tag or two."""
    return 2 * sum(MARKED_SPAN.search(line) is not None for line in lines) > len(lines)


@dataclass(frozen=True)
class ComparableSets:
    """Masculine and feminine references of the same sentences, and what it took to make them so.

    table: the columns of `read_references`, gender masculine or feminine alone, and taken_from, the gender that the
    reference really is of: it differs from `gender` where that one was missing. languages: a row per language with
    lang, sentences, masculine and feminine (sentences with a reference of that gender), replaced_masculine and
    replaced_feminine (those with a neutral or generic one in its place), missing (sentences left out because nothing
    can stand in for one of the two) and left_out, the reason why the language is not in `table`, or None.
    """

    table: pd.DataFrame
    languages: pd.DataFrame


def build_comparable_sets(
    references: pd.DataFrame, min_masculine_references: int = MIN_MASCULINE_REFERENCES
) -> ComparableSets:
    """Make masculine and feminine sets of the same sentences, by the rule of the paper (004, §4.1).

    Where a sentence has no masculine or feminine reference, its neutral one is taken in its place, else the generic
    one. Languages with fewer than 100 sentences that have a masculine reference are left out.

    Args:
        references: what a reader of this module returns.
        min_masculine_references: 100 in the paper; 0 keeps every language.

    Raises:
        InputError: no language is left.
    """
    parts, rows = [], []
    for lang, of_lang in references.groupby(LANG, sort=True):
        own = {gender: set(of_lang.loc[of_lang[GENDER] == gender, SENTENCE_ID]) for gender in GENDERS}
        filled = {gender: own[gender] | own[NEUTRAL] | own[GENERIC] for gender in (MASCULINE, FEMININE)}
        both = filled[MASCULINE] & filled[FEMININE]
        few = len(own[MASCULINE]) < min_masculine_references
        row = {LANG: lang, "sentences": of_lang[SENTENCE_ID].nunique()}
        row |= {gender: len(own[gender]) for gender in filled}
        row |= {f"replaced_{gender}": len(both - own[gender]) for gender in filled}
        row |= {"missing": row["sentences"] - len(both)}
        rows.append(row | {"left_out": f"fewer than {min_masculine_references} masculine references" if few else None})
        if not few:
            parts += [_filled(of_lang[of_lang[SENTENCE_ID].isin(both)], gender) for gender in filled]
    if not parts or not sum(map(len, parts)):
        counts = ", ".join(f"{row[LANG]} {row[MASCULINE]}" for row in rows)
        raise InputError(
            f"min_masculine_references: no language has sentences to compare and {min_masculine_references} masculine "
            f"references ({counts or 'there are no rows'}); add references, or lower it."
        )
    languages = pd.DataFrame(rows).astype({"left_out": object}).replace({"left_out": {np.nan: None}})
    return ComparableSets(pd.concat(parts, ignore_index=True), languages)


def select_source_sentences(table: pd.DataFrame, *, source: str, target: str) -> pd.DataFrame:
    """Return the sentences to translate from one language into another.

    An English sentence that stands for both genders is ambiguous: it is translated once. In another language, and in
    English where its versions differ (MT-GenEval), there is a masculine and a feminine sentence each (004, §4.3, §4.4).

    Args:
        table: `ComparableSets.table`.
        source, target: FLORES codes, one of them may be "eng_Latn".

    Returns:
        sentence_id, axis, descriptor, template, gender ("" if ambiguous) and text; the first reference of a sentence
        where it has several.

    Raises:
        InputError: the table does not have one of the languages, or both are the same.
    """
    if source == target:
        raise InputError(f"target: {target!r} is the source language too; give another.")
    english = source == ENGLISH_LANGUAGE.code
    of_lang = select_language(table, target if english else source)
    if not english and target != ENGLISH_LANGUAGE.code:
        of_lang = of_lang[of_lang[SENTENCE_ID].isin(select_language(table, target)[SENTENCE_ID])]
    texts = of_lang.rename(columns={ENGLISH if english else REFERENCE: "text"})
    texts = texts.drop_duplicates([SENTENCE_ID, GENDER])[[SENTENCE_ID, AXIS, DESCRIPTOR, TEMPLATE, GENDER, "text"]]
    if english:
        ambiguous = texts.groupby(SENTENCE_ID)["text"].transform("nunique") == 1
        texts.loc[ambiguous, GENDER] = ""
        texts = texts.drop_duplicates([SENTENCE_ID, GENDER])
    return texts.reset_index(drop=True)


def select_language(table: pd.DataFrame, lang: str) -> pd.DataFrame:
    """Return a language's rows.

    Raises:
        InputError: there are none.
    """
    rows = table[table[LANG] == lang]
    if rows.empty:
        raise unknown_name("lang", lang, set(table[LANG]))
    return rows


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8, ended by line feeds alone; what ends the last one adds none.

    Raises:
        InputError: the file cannot be read or is not UTF-8.
    """
    lines = _read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_translations(path: Path, expected: int) -> list[str]:
    """Return the translations in a text file, a line for each source sentence; a line may be empty.

    Raises:
        InputError: the file cannot be read, or does not have as many lines as there are sentences.
    """
    lines = read_lines(path)
    if len(lines) != expected:
        raise InputError(f"{path} has {len(lines)} lines for {expected} sentences; write one translation per line.")
    return [line.strip() for line in lines]


def _filled(of_lang: pd.DataFrame, gender: str) -> pd.DataFrame:
    """Return each sentence's references of the first gender that it has: this one, neutral, generic."""
    order = {name: rank for rank, name in enumerate((gender, NEUTRAL, GENERIC))}
    usable = of_lang[of_lang[GENDER].isin(order)]
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


def _read_table(path: Path, delimiter: str, needed: Sequence[str]) -> pd.DataFrame:
    """Return a table of strings, "" where a field is empty."""
    text = _read_text(path)
    try:
        table = pd.DataFrame(parse_csv(text, delimiter), dtype=object)
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a table ({error}); write a header and full rows.") from None
    missing = [name for name in needed if name not in table]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}, only {', '.join(map(str, table))}; add it.")
    return table


def _listed(path: Path, line: int, column: str, cell: str) -> list[str]:
    """Return the sentences of a cell; pandas writes a missing one as "nan"."""
    if cell.strip() in ("", "nan", "None"):
        return []
    try:
        found = ast.literal_eval(cell)
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise ValueError
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(
            f"{path}: {column} in row {line} is {cell[:60]!r}; it must be a Python list of sentences, or empty."
        ) from None
    return [text for text in found if text.strip()]


def _marked(path: Path, row: int, cell: str) -> list[str] | None:
    if not cell:
        return None
    try:
        spans = json.loads(cell)
    except ValueError:
        spans = None
    if not isinstance(spans, list) or not all(isinstance(span, str) for span in spans):
        raise InputError(f"{path}: marked in row {row} is {cell!r}; write a JSON list of spans, or leave it empty.")
    return spans


def _checked(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        raise InputError(f"{path} has no reference; write one in each row.")
    for code in table[LANG].unique():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", code):  # files are called by it
            raise InputError(f"{path}: lang {code!r} is no code of a language; write one such as spa_Latn.")
    for name in (AXIS, DESCRIPTOR, TEMPLATE):
        several = table.groupby(SENTENCE_ID, sort=False)[name].nunique().gt(1)
        if several.any():
            raise InputError(f"{path}: sentence_id {several.idxmax()!r} has more than one {name}; give it one.")
    return table[COLUMNS].reset_index(drop=True)
