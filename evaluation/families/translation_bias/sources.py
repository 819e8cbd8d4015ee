"""What is to be translated, by pair of languages, and the files that translations are read from."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pandas as pd

from evenhand.evaluation.datasets.gendered_translations import (
    ENGLISH_LANGUAGE,
    LANG,
    ComparableSets,
    comparable_sets,
    read_translations,
    source_sentences,
)
from evenhand.evaluation.datasets.references import load_references
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.translation_bias.settings import Settings
from evenhand.evaluation.runs.files import sha256_of, write_text

SOURCES = "sources"  # folder, in that of the translations, of what is still to be translated


def comparable_references(settings: Settings) -> ComparableSets:
    """Return the references that the settings name, made comparable.

    Raises:
        InputError: they cannot be read, or no language is left.
    """
    references = load_references(settings.references, settings.split, settings.languages, "translation_bias.languages")
    return comparable_sets(references, settings.min_masculine_references)


def source_tables(table: pd.DataFrame, directions: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the sentences to translate (`source_sentences`) of every pair of languages, by "SOURCE-TARGET"."""
    return {
        f"{source}-{target}": source_sentences(table, source=source, target=target)
        for source, target in _pairs(sorted(set(table[LANG])), directions)
    }


def translation_hashes(folder: Path, sources: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return a SHA-256 of each pair's file of translations; where some are missing, write what is to be translated.

    Args:
        folder: of SOURCE-TARGET.txt, a line for each sentence.
        sources: what `source_tables` returned.

    Raises:
        InputError: a file is missing, or has another number of lines than there are sentences.
    """
    files = {pair: folder / f"{pair}.txt" for pair in sources}
    if missing := [path for path in files.values() if not path.is_file()]:
        for path in missing:
            lines = [" ".join(text.splitlines()) for text in sources[path.stem]["text"]]
            write_text(folder / SOURCES / path.name, "".join(f"{line}\n" for line in lines))
        raise InputError(
            f"translations: {folder} lacks {len(missing)} of {len(files)} files ({missing[0].name}"
            f"{', …' if len(missing) > 1 else ''}); translate those in {folder / SOURCES}, line by line, and put the "
            f"results into {folder} under the same names."
        )
    for pair, path in files.items():
        read_translations(path, len(sources[pair]))
    return {path.name: sha256_of(path) for path in files.values()}


def _pairs(languages: Sequence[str], directions: Sequence[str]) -> Iterator[tuple[str, str]]:
    english = ENGLISH_LANGUAGE.code
    if "en-xx" in directions:
        yield from ((english, lang) for lang in languages)
    if "xx-en" in directions:
        yield from ((lang, english) for lang in languages)
    if "xx-xx" in directions:
        yield from permutations(languages, 2)
