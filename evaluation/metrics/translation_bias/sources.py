"""Sentences to translate, by pair of languages, and the files with their translations."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pandas as pd

from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_LANGUAGE,
    LANG,
    read_translations,
    select_source_sentences,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of, write_text

SOURCES = "sources"  # subfolder of the folder of translations, for the sentences without a translation


def make_source_tables(table: pd.DataFrame, directions: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return a table of the sentences to translate for each pair of languages; the keys are "SOURCE-TARGET"."""
    return {
        f"{source}-{target}": select_source_sentences(table, source=source, target=target)
        for source, target in _language_pairs(sorted(set(table[LANG])), directions)
    }


def hash_translations(folder: Path, sources: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return the SHA-256 of the file of translations for each pair of languages.

    If files are missing, write their sentences to the subfolder `sources` of the folder.

    Args:
        sources: the result of `make_source_tables`.

    Raises:
        InputError: a file is missing, or its number of lines is not the number of sentences.
    """
    files = {pair: folder / f"{pair}.txt" for pair in sources}
    if missing := [path for path in files.values() if not path.is_file()]:
        for path in missing:
            lines = [" ".join(text.splitlines()) for text in sources[path.stem]["text"]]
            write_text(folder / SOURCES / path.name, "".join(f"{line}\n" for line in lines))
        raise InputError(
            f"translations: {folder} lacks {len(missing)} of {len(files)} files ({missing[0].name}"
            f"{', …' if len(missing) > 1 else ''}); translate the files in {folder / SOURCES} line by line, and write "
            f"the results to {folder} under the same names."
        )
    for pair, path in files.items():
        read_translations(path, len(sources[pair]))
    return {path.name: sha256_of(path) for path in files.values()}


def _language_pairs(languages: Sequence[str], directions: Sequence[str]) -> Iterator[tuple[str, str]]:
    english = ENGLISH_LANGUAGE.code
    if "en-xx" in directions:
        yield from ((english, lang) for lang in languages)
    if "xx-en" in directions:
        yield from ((lang, english) for lang in languages)
    if "xx-xx" in directions:
        yield from permutations(languages, 2)
