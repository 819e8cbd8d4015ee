"""Gendered reference translations: masculine and feminine translations of English sentences.

A table has one row per reference, which is masculine, feminine, neutral (it fits both genders of a language that has
genders) or generic (the language does not mark gender here), as in MultilingualHolisticBias (Costa-jussà et al. 2023).
Tables are read from MMHB, the successor of MultilingualHolisticBias, from MT-GenEval (Currey
et al. 2022, github.com/amazon-science/machine-translation-gender-eval), or from a user's CSV file.
"""

import ast
import csv
import json
import logging
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

import pandas as pd
from pydantic import TypeAdapter

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import files_sha256, sha256_of
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.tables import table_rows

log = logging.getLogger("evenhand")

SENTENCE_ID = "sentence_id"
ENGLISH_TEXT = "english"
LANG = "lang"
GENDER = "gender"
REFERENCE = "reference"
MARKED = "marked"
TAKEN_FROM = "taken_from"  # the gender of a reference that replaces a missing one
MASCULINE = "masculine"
FEMININE = "feminine"
NEUTRAL = "neutral"
GENERIC = "generic"
GENDERS = (MASCULINE, FEMININE, NEUTRAL, GENERIC)
COLUMNS = [
    SENTENCE_ID,
    columns.AXIS,
    columns.DESCRIPTOR,
    columns.TEMPLATE,
    ENGLISH_TEXT,
    LANG,
    GENDER,
    REFERENCE,
    MARKED,
]
MT_GENEVAL_URL = "github.com/amazon-science/machine-translation-gender-eval"
MMHB_URL = "github.com/facebookresearch/ResponsibleNLP/tree/main/mmhb"
MT_GENEVAL = "geneval-sentences-masculine-{split}.en_{lang}.en"

LANGUAGES = Path(__file__).parent / "files" / "languages_50.csv"
OTHER_NAMES = LANGUAGES.with_name("language_names.csv")  # of the other languages that py3langid tells apart
MIN_MASCULINE_REFERENCES = 100  # Costa-jussà et al. 2023, §4.1
MMHB_BOTH = "both"  # MMHB's column of all references of a sentence, of either gender (its "Multi-Reference")
MMHB_IDS = ("pattern_id_main", "noun_id_main", "desc_id_main")
MMHB_COLUMNS = ("sentence_eng", *MMHB_IDS, "lang", MASCULINE, FEMININE, MMHB_BOTH)
MMHB_GENDER_GROUP = "gender_group"  # MMHB's column of the gender of a sentence that has only one
MMHB_DESCRIPTORS = "_descriptors_full_id.tsv"  # the end of the names of MMHB's files of descriptors
MARK = re.compile(r"</?\s*([MF])\s*>", re.IGNORECASE)
MARKED_SPAN = re.compile(r"<\s*([MF])\s*>(.*?)<\s*/\s*\1\s*>", re.IGNORECASE)


class Language(NamedTuple):
    """A language: `code` is its FLORES code ("spa_Latn"), `short` its two-letter code ("es", or "" without one)."""

    code: str
    name: str
    short: str


ENGLISH_LANGUAGE = Language("eng_Latn", "English", "en")
KOREAN = Language("kor_Hang", "Korean", "ko")  # in MMHB, but not among the paper's languages


@cache
def _languages() -> dict[str, Language]:
    """Return English, Korean and the 50 languages of Costa-jussà et al. 2023, Table 4, by each of their codes."""
    with LANGUAGES.open(encoding="utf-8", newline="") as file:
        languages = [ENGLISH_LANGUAGE, KOREAN, *(Language(*row) for row in list(csv.reader(file))[1:])]
    return {
        code: language for language in languages for code in (language.code, language.code[:3], language.short) if code
    }


@cache
def _other_names() -> dict[str, str]:
    """Return the English names (ISO 639) of languages by their codes."""
    with OTHER_NAMES.open(encoding="utf-8", newline="") as file:
        return {row["code"]: row["name"] for row in csv.DictReader(file)}


def language_name(code: str) -> str:
    """Return the English name of a language, or its code (at most 40 characters) if it is unknown.

    >>> language_name("es"), language_name("wuu")
    ('Spanish', 'Wu Chinese')
    """
    return _languages()[code].name if code in _languages() else _other_names().get(code, code[:40])


def find_language(code: str, field: str = "lang") -> Language:
    """Return a language of MultilingualHolisticBias, English or Korean, by "spa_Latn" (FLORES), "spa" or "es".

    Raises:
        InputError: the code is unknown; the message names the setting `field`.

    >>> find_language("es").code
    'spa_Latn'
    """
    if code not in _languages():
        raise unknown_name(field, code, _languages())
    return _languages()[code]


def _code_in_pairs(code: str) -> str:
    """Return the FLORES code of a language, or the code without hyphens, which separate the languages of a pair."""
    return _languages()[code].code if code in _languages() else code.replace("-", "_")


def read_references(path: Path) -> pd.DataFrame:
    """Return the references of a CSV file with the columns english, lang, gender and reference.

    Optional columns are sentence_id (by default, the distinct English sentences, sorted, are numbered from 1), axis,
    descriptor and template (by default ""), and marked: a JSON list of the gender-marked spans of the reference, an
    empty field if the spans are unknown. Rows with an empty reference are left out. Returns a table with `COLUMNS`.

    Raises:
        InputError: the file cannot be read, a column is missing, a gender, language code or `marked` is invalid, or one
            sentence_id has several axes, descriptors or templates.
    """
    rows = _read_table(path, (ENGLISH_TEXT, LANG, GENDER, REFERENCE))
    if SENTENCE_ID not in rows:
        codes = pd.factorize(rows[ENGLISH_TEXT], sort=True)[0]  # the order of rows must not matter
        rows[SENTENCE_ID] = [str(code + 1) for code in codes]
    for name in (columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, MARKED):
        if name not in rows:
            rows[name] = ""
    for gender in rows[GENDER].unique():
        if gender not in GENDERS:
            raise unknown_name(f"{path}: gender", gender, GENDERS)
    marked = []
    for line, cell in enumerate(rows[MARKED], start=2):
        marked.append(_parse_texts(path, line, MARKED, cell, json.loads) if cell else None)
    rows[MARKED] = pd.Series(marked, dtype=object)
    return _check_references(path, rows[rows[REFERENCE].str.strip() != ""])


def read_mmhb(path: Path, axes: Mapping[str, str] | None = None, nouns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the references, with `COLUMNS`, of an MMHB sentence file, `mmhb_dataset/{lang}/{train,dev,devtest}.csv`.

    Fields are separated by tabs; `masculine`, `feminine` and `both` are Python lists of sentences, or empty. `both` is
    the multi-reference of MMHB's own scripts (`mmhb/nllb` in ResponsibleNLP): a text in it is neutral only if it is
    neither a masculine nor a feminine reference, and if the column `gender_group` gives the sentence no gender. So "I
    have a deaf mother" has no masculine reference. If `gender_group` is a gender, only its references are read.

    Descriptors and templates are MMHB's ids; a sentence_id consists of the ids of template, noun and descriptor and the
    English text.

    Args:
        axes: {descriptor id: axis} (`read_mmhb_axes`).
        nouns: ids of nouns, such as "N051"; None for all.

    Raises:
        InputError: the file has another format.
    """
    rows = _read_table(path, MMHB_COLUMNS)
    axes = axes or {}
    references = []
    for line, row in enumerate(table_rows(rows), start=2):
        template, noun, descriptor = (row[name] for name in MMHB_IDS)
        if nouns is not None and noun not in nouns:
            continue
        english = row["sentence_eng"]
        sentence = {
            SENTENCE_ID: f"{template}/{noun}/{descriptor}/{english}",
            columns.AXIS: axes.get(descriptor, ""),
            columns.DESCRIPTOR: descriptor,
            columns.TEMPLATE: template,
            ENGLISH_TEXT: english,
            LANG: row["lang"],
            MARKED: None,
        }
        for gender, texts in _mmhb_texts(path, line, row).items():
            references += [sentence | {GENDER: gender, REFERENCE: text} for text in texts]
    if not references and nouns is not None:
        raise InputError(
            "references.nouns", f"{path} has no reference with {', '.join(nouns)}; give ids of MMHB, such as N051."
        )
    return _check_references(path, pd.DataFrame(references, columns=COLUMNS))


def _mmhb_texts(path: Path, line: int, row: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the references of each gender in a row of an MMHB sentence file."""
    texts = {}
    for column in (MASCULINE, FEMININE, MMHB_BOTH):
        cell = "" if row[column] in ("nan", "None") else row[column]  # missing values written by pandas
        parsed = _parse_texts(path, line, column, cell, ast.literal_eval) if cell.strip() else []
        texts[column] = [text for text in parsed if text.strip()]
    both = texts.pop(MMHB_BOTH)
    gender = row.get(MMHB_GENDER_GROUP, "")
    if gender in texts:
        return {gender: texts[gender]}
    texts[NEUTRAL] = [text for text in both if text not in texts[MASCULINE] and text not in texts[FEMININE]]
    return texts


def read_mmhb_axes(path: Path) -> dict[str, str]:
    """Return the axis of each descriptor id in MMHB's file `{lang}_descriptors_full_id.tsv`.

    Ids are included with and without their last letter, which distinguishes forms of a descriptor: "P_D001a", "P_D001".
    """
    rows = _read_table(path, ("ID", "HB AXIS"))
    axes = dict(zip(rows["ID"], rows["HB AXIS"], strict=True))
    by_descriptor = {re.sub(r"(?<=\d)[a-z]$", "", name): axis for name, axis in axes.items()}
    return by_descriptor | axes


def read_mt_geneval(folder: Path, lang: str, split: str = "dev") -> pd.DataFrame:
    """Return MT-GenEval's counterfactual sentences, each in a masculine and a feminine version, with translations.

    Source: Currey et al. (2022), §3.1. The English versions differ too, because English marks the gender in these
    sentences. The files of MT-GenEval's folder `annotated` have tags for gender-marked spans, `<F>ella</F>`; other
    files can have stray tags. Spans are therefore known only if most lines in the files of both genders have a tag.
    Tags are removed; square brackets ("[citation needed]") are text and stay. Returns a table with `COLUMNS`; a
    sentence_id is "en_es/1"; axis, descriptor and template are "".

    Args:
        folder: contains geneval-sentences-{masculine,feminine}-{split}.en_{lang}.{en,lang}, with one sentence per line.

    Raises:
        InputError: a file is missing, or the four files differ in their number of lines.
    """
    language = find_language(lang)
    genders = (MASCULINE, FEMININE)
    english = {}
    translated = {}
    for gender in genders:
        name = f"geneval-sentences-{gender}-{split}.en_{language.short}"
        english[gender] = _read_lines(folder / f"{name}.en")
        translated[gender] = _read_lines(folder / f"{name}.{language.short}")
    counts = {len(lines) for texts in (english, translated) for lines in texts.values()}
    if len(counts) > 1:
        raise InputError(folder, f"the files of {lang} have {sorted(counts)} lines; give files of equal length.")
    is_annotated = all(_mostly_marked(translated[gender]) for gender in genders)
    references = []
    for gender in genders:
        for number, (source, reference) in enumerate(zip(english[gender], translated[gender], strict=True), start=1):
            spans = [span.strip() for _, span in MARKED_SPAN.findall(reference)]
            references.append(
                {
                    SENTENCE_ID: f"en_{language.short}/{number}",
                    columns.AXIS: "",
                    columns.DESCRIPTOR: "",
                    columns.TEMPLATE: "",
                    ENGLISH_TEXT: MARK.sub("", source).strip(),
                    LANG: language.code,
                    GENDER: gender,
                    REFERENCE: MARK.sub("", reference).strip(),
                    MARKED: spans if is_annotated else None,
                }
            )
    return pd.DataFrame(references, columns=COLUMNS)


def _mostly_marked(lines: Sequence[str]) -> bool:
    """Return whether more than half of the lines have a tag for a gender-marked span."""
    return 2 * sum(MARKED_SPAN.search(line) is not None for line in lines) > len(lines)


def load_references(settings: ReferenceSettings) -> pd.DataFrame:
    """Return the references in a CSV file, or in a folder of MT-GenEval or MMHB, with `COLUMNS`.

    MMHB is read from its zip as it is, or from a folder with its zips or its files.

    Raises:
        InputError: no name is given, the references cannot be read, they lack a language, or have no ids of nouns.
    """
    path = _check_path(settings.name)
    field = "references.languages"
    is_table = path.is_file() and path.suffix != ".zip"  # in which there may be any language
    wanted = [] if is_table else [find_language(code, field) for code in settings.languages]
    with TemporaryDirectory() as folder:
        _extract_mmhb(path, settings.split, Path(folder))
        table = _read_any(path, settings.split, wanted, Path(folder), settings.nouns)
    codes = {_code_in_pairs(code) for code in settings.languages}
    if not codes:
        return table
    present = set(table[LANG])
    if missing := codes - present:
        raise InputError(field, f"{path} has no {', '.join(sorted(missing))}, only {', '.join(sorted(present))}.")
    return table[table[LANG].isin(codes)].reset_index(drop=True)


def _extract_mmhb(path: Path, split: str, extracted: Path) -> None:
    """Extract MMHB's sentences of a split and its descriptors from a zip, or from the zips in a folder."""
    for archive in [path] if path.suffix == ".zip" else sorted(path.glob("*.zip")):
        try:
            with ZipFile(archive) as file:
                names = [name for name in file.namelist() if name.endswith((f"/{split}.csv", MMHB_DESCRIPTORS))]
                file.extractall(extracted, names)
        except (OSError, BadZipFile, RuntimeError, zlib.error) as error:  # also one with a password, or damaged
            raise InputError("references", f"{archive} cannot be read ({error}); give MMHB's zip.") from None


def _read_any(
    path: Path, split: str, wanted: Sequence[Language], extracted: Path, nouns: Sequence[str] | None
) -> pd.DataFrame:
    """Return the references in a file or folder; unzipped files of MMHB may also be in the folder `extracted`."""
    is_table = path.is_file() and path.suffix != ".zip"
    mt_geneval = sorted(path.glob(MT_GENEVAL.format(split=split, lang="*")))
    if nouns is not None and (is_table or mt_geneval):
        raise InputError("references.nouns", f"{path} is not MMHB, and has no ids of nouns; leave the setting out.")
    if is_table:
        return read_references(path)
    if mt_geneval:
        present = [file.name.split("en_")[1].split(".")[0] for file in mt_geneval]
        codes = [language.short for language in wanted] or present
        return pd.concat([read_mt_geneval(path, code, split) for code in codes], ignore_index=True)
    files = sorted([*path.rglob(f"*/{split}.csv"), *extracted.rglob(f"*/{split}.csv")])
    if files:
        axes: dict[str, str] = {}
        for file in sorted([*path.rglob(f"*{MMHB_DESCRIPTORS}"), *extracted.rglob(f"*{MMHB_DESCRIPTORS}")]):
            axes |= read_mmhb_axes(file)
        return pd.concat([read_mmhb(file, axes, nouns) for file in files], ignore_index=True)
    raise InputError(
        "references",
        f"{path} is no CSV file, and has neither {MT_GENEVAL.format(split=split, lang='…')} (MT-GenEval) "
        f"nor …/{split}.csv (MMHB); give another folder, or another split than {split!r}.",
    )


def references_sha256(path: Path | None) -> str:
    """Return the SHA-256 of a file of references, or of all files in a folder of references."""
    path = _check_path(path)
    if path.is_file():
        return sha256_of(path)
    files = (file for file in path.rglob("*") if file.is_file())
    return files_sha256({file.relative_to(path).as_posix(): file for file in files})


def _check_path(path: Path | None) -> Path:
    if path is None or not path.expanduser().exists():
        problem = "required" if path is None else f"{path} does not exist"
        raise InputError(
            "references",
            f"{problem}; give a CSV file, a folder of MT-GenEval ({MT_GENEVAL_URL}), or MMHB's zip ({MMHB_URL}).",
        )
    return path.expanduser()


def comparable_references(
    references: pd.DataFrame, min_masculine_references: int = MIN_MASCULINE_REFERENCES
) -> pd.DataFrame:
    """Return masculine and feminine references of the same sentences (Costa-jussà et al. 2023, §4.1).

    A missing masculine or feminine reference is replaced by the neutral reference of the sentence, else by the generic
    reference. Languages are left out if fewer than `min_masculine_references` sentences have a masculine reference.

    Args:
        references: the columns of `read_references`.
        min_masculine_references: 100 in the paper; with 0, no language is left out.

    Returns:
        `COLUMNS` with gender masculine or feminine, and taken_from, the gender of the actual reference.

    Raises:
        InputError: all languages are left out.
    """
    parts = []
    n_masculine = {}
    for lang, rows in references.groupby(LANG, sort=True):
        ids = _ids_by_gender(rows)
        n_masculine[lang] = len(ids[MASCULINE])
        if len(ids[MASCULINE]) >= min_masculine_references:
            comparable = rows[rows[SENTENCE_ID].isin(_comparable_ids(ids))]
            parts += [_select_references(comparable, gender) for gender in (MASCULINE, FEMININE)]
    if not sum(map(len, parts)):
        counts = ", ".join(f"{lang} {n}" for lang, n in n_masculine.items())
        raise InputError(
            "references.min_masculine_references",
            f"no language has sentences to compare and {min_masculine_references} masculine "
            f"references ({counts or 'the table is empty'}); add references, or lower it.",
        )
    return pd.concat(parts, ignore_index=True)


def count_references(
    references: pd.DataFrame, min_masculine_references: int = MIN_MASCULINE_REFERENCES
) -> pd.DataFrame:
    """Return how many sentences of each language `comparable_references` uses, a row for each language.

    Args:
        references: the columns of `read_references`.
        min_masculine_references: 100 in the paper; with 0, no language is left out.

    Returns:
        lang; the numbers of `sentences`; of those with a `masculine`, `feminine`, `neutral` and `generic` reference
        (Costa-jussà et al. 2023, Figure 1); of those with a neutral or generic reference instead of a gendered one
        (`replaced_masculine`, `replaced_feminine`); of those without any (`missing`); and `left_out`, the reason why
        the language is left out, or None.
    """
    counts = []
    for lang, rows in references.groupby(LANG, sort=True):
        ids = _ids_by_gender(rows)
        comparable = _comparable_ids(ids)
        n_sentences = rows[SENTENCE_ID].nunique()
        has_too_few = len(ids[MASCULINE]) < min_masculine_references
        counts.append(
            {
                LANG: lang,
                "sentences": n_sentences,
                **{gender: len(ids[gender]) for gender in GENDERS},
                "replaced_masculine": len(comparable - ids[MASCULINE]),
                "replaced_feminine": len(comparable - ids[FEMININE]),
                "missing": n_sentences - len(comparable),
                "left_out": f"fewer than {min_masculine_references} masculine references" if has_too_few else None,
            }
        )
    table = pd.DataFrame(counts)
    table["left_out"] = pd.Series([row["left_out"] for row in counts], dtype=object)  # pandas would make None a NaN
    return table


def _ids_by_gender(rows: pd.DataFrame) -> dict[str, set[str]]:
    """Return the ids of the sentences that have a reference of each gender."""
    return {gender: set(rows.loc[rows[GENDER] == gender, SENTENCE_ID]) for gender in GENDERS}


def _comparable_ids(ids: Mapping[str, set[str]]) -> set[str]:
    """Return the ids of the sentences that have a masculine and a feminine reference, or one that replaces it."""
    return (ids[MASCULINE] & ids[FEMININE]) | ids[NEUTRAL] | ids[GENERIC]


def select_source_sentences(table: pd.DataFrame, *, source: str, target: str) -> pd.DataFrame:
    """Return the sentences to translate from one language into another (Costa-jussà et al. 2023, §4.3, §4.4).

    An English sentence with the same text for both genders is ambiguous and is translated once. Sentences in another
    language, and English sentences with two versions (MT-GenEval), are translated once for each gender.

    Args:
        table: the references of `comparable_references`.
        source, target: FLORES codes; one of them can be "eng_Latn".

    Returns:
        Columns sentence_id, axis, descriptor, template, gender ("" if ambiguous) and text (the first of several).

    Raises:
        InputError: the table lacks one of the languages, or the languages are equal.
    """
    if source == target:
        raise InputError("target", f"{target!r} is the source language too; give another.")
    from_english = source == ENGLISH_LANGUAGE.code
    rows = select_language(table, target if from_english else source)
    if not from_english and target != ENGLISH_LANGUAGE.code:
        rows = rows[rows[SENTENCE_ID].isin(select_language(table, target)[SENTENCE_ID])]
    texts = rows.rename(columns={ENGLISH_TEXT if from_english else REFERENCE: "text"})
    texts = texts.drop_duplicates([SENTENCE_ID, GENDER])[
        [SENTENCE_ID, columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, GENDER, "text"]
    ]
    if from_english:
        ambiguous = texts.groupby(SENTENCE_ID)["text"].transform("nunique") == 1
        texts.loc[ambiguous, GENDER] = ""
        texts = texts.drop_duplicates([SENTENCE_ID, GENDER])
    return texts.reset_index(drop=True)


def select_language(table: pd.DataFrame, lang: str) -> pd.DataFrame:
    """Return the rows of a table of references that are in the language `lang`, a FLORES code."""
    rows = table[table[LANG] == lang]
    if rows.empty:
        raise unknown_name("lang", lang, set(table[LANG]))
    return rows


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a text file in UTF-8, split only at line feeds."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise InputError(path, f"cannot be read as UTF-8 ({error}); give a text file.") from None
    return lines[:-1] if lines[-1] == "" else lines


def read_translations(path: Path, expected: int) -> list[str]:
    """Return the translations in a text file with one line for each source sentence; a line may be empty."""
    lines = _read_lines(path)
    if len(lines) != expected:
        raise InputError(path, f"has {len(lines)} lines for {expected} sentences; write one translation per line.")
    translations = [line.strip() for line in lines]
    n_empty = translations.count("")
    if n_empty and n_empty == expected:
        raise InputError(path, "has only empty lines; write one translation per line.")
    if n_empty:
        log.warning("%s: %d of %d translations are empty; they count as wrong", path, n_empty, expected)
    return translations


def _select_references(rows: pd.DataFrame, gender: str) -> pd.DataFrame:
    """Return each sentence's references of `gender`; if it has none, the neutral references, else the generic ones."""
    order = {name: rank for rank, name in enumerate((gender, NEUTRAL, GENERIC))}
    usable = rows[rows[GENDER].isin(order)]
    rank = usable[GENDER].map(order)
    best = usable[rank == rank.groupby(usable[SENTENCE_ID]).transform("min")]
    selected = best.copy()
    selected[TAKEN_FROM] = best[GENDER]
    selected[GENDER] = gender
    return selected


def _read_table(path: Path, required: Sequence[str]) -> pd.DataFrame:
    """Return a table of texts, with "" for a missing value; InputError if it lacks one of the `required` columns."""
    columns = read_columns(path, "a table", known=required)
    if not columns:
        raise InputError(path, "is empty; give a file with a row for each reference.")
    if missing := [name for name in required if name not in columns]:
        raise InputError(path, f"has no column {missing[0]!r}, only {', '.join(columns)}; add it.")
    texts = {name: ["" if value is None else str(value) for value in values] for name, values in columns.items()}
    return pd.DataFrame(texts, dtype=object)


def _parse_texts(path: Path, row: int, column: str, cell: str, parse: Callable[[str], object]) -> list[str]:
    """Return the texts of the list in a cell; InputError if `parse` reads something else."""
    try:
        return TypeAdapter(list[str]).validate_python(parse(cell))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(
            path, f"{column} in row {row} is {cell[:60]!r}; write a list of texts, or leave it empty."
        ) from None


def _check_references(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `COLUMNS` of references, with FLORES codes; InputError if one is invalid."""
    if table.empty:
        raise InputError(path, "has no reference; write one in each row.")
    for code in table[LANG].unique():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", code):  # it becomes part of file names
            raise InputError(path, f"lang {code!r} is no language code; write a code such as spa_Latn.")
    table[LANG] = [_code_in_pairs(code) for code in table[LANG]]
    for name in (columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE):
        several = table.groupby(SENTENCE_ID, sort=False)[name].nunique().gt(1)
        if several.any():
            raise InputError(path, f"sentence_id {several.idxmax()!r} has several values of {name}; give it one.")
    return table[COLUMNS].reset_index(drop=True)
