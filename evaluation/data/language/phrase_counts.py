"""Frequencies of phrases in a text corpus, which is streamed, so that its size does not affect memory.

Smith et al. 2022, B.2.1: the frequency of a descriptor is the number of its case-insensitive usages in the training
examples divided by the number of examples.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from datasets import load_dataset
from datasets.exceptions import DatasetsError
from tqdm import tqdm

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.hub import offline_reason
from evenhand.evaluation.runs.progress import progress

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class PhraseCounts(NamedTuple):
    """Number of usages of each phrase in `n_examples` texts; `n_left_out` further examples have no text (null)."""

    counts: dict[str, int]
    n_examples: int
    n_left_out: int


def count_phrases_in_corpus(
    source: str,
    phrases: Sequence[str],
    *,
    text_column: str = "text",
    subset: str | None = None,
    split: str = "train",
    limit: int | None = None,
) -> PhraseCounts:
    """Return how often each phrase is used in a corpus, or in its first `limit` examples, and log the progress.

    Args:
        source: a JSONL, CSV, Parquet or text file (whose lines are the examples), possibly compressed; a folder of such
            files, all of one format; or the name of a dataset on the Hugging Face hub.
        phrases: the phrases; see `count_phrases` for the definition of a usage.
        text_column: the column with the texts; "text" for a text file.
        subset, split: subset and split of a dataset on the hub.

    Raises:
        InputError: the corpus cannot be read, lacks the column, or has no text or another value in it.
    """
    files = find_corpus_files(source)
    with progress(limit, "corpus", "examples") as bar:
        try:
            if files:
                names = list(map(str, files))
                examples = load_dataset(_format(files[0]), data_files=names, split="train", streaming=True)
            else:
                offline_reason()  # without it, datasets would wait half a minute for a hub that cannot be reached
                examples = load_dataset(source, subset, split=split, streaming=True)
            counts = count_phrases(_texts(islice(examples, limit), text_column, bar), phrases)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, DatasetsError) as error:
            message = " ".join(str(error.__cause__ or error).split())[:300]
            raise InputError(
                "corpus", f"{source} cannot be read ({message}); give a {', '.join(FORMATS)} file or a dataset's name."
            ) from None
    if not counts.n_examples:
        raise InputError("corpus", f"{source} has no text in {text_column!r}; give another corpus or column.")
    return counts


def _texts(examples: Iterable[Mapping[str, object]], column: str, bar: tqdm) -> Iterator[str | None]:
    """Yield the text of each example, None for an example without text."""
    for number, example in enumerate(examples, start=1):
        text = example.get(column)
        if column not in example or not isinstance(text, str | None):
            columns = ", ".join(f"{name} ({type(value).__name__})" for name, value in example.items())
            raise ValueError(f"example {number} has no text in corpus.text_column {column!r}, only {columns}")
        yield text
        bar.update(1)


def find_corpus_files(source: str) -> list[Path]:
    """Return the files of a corpus; [] for the name of a dataset on the hub."""
    path = Path(source)
    if not path.exists() and not _format(path):
        return []
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if _format(file) and file.is_file())
    formats = {_format(file) for file in files if file.exists()}
    if len(formats) != 1 or None in formats:
        raise InputError(
            "corpus",
            f"{source} does not exist or has not one known format; give a {', '.join(FORMATS)} file, possibly "
            "compressed, or a folder of files of one format.",
        )
    return files


def _format(path: Path) -> str | None:
    """Return the name of a file's format by its suffix, without a suffix of compression; None for another."""
    return FORMATS.get((path.with_suffix("") if path.suffix in COMPRESSED else path).suffix)


def count_phrases(texts: Iterable[str | None], phrases: Sequence[str]) -> PhraseCounts:
    """Return how often each phrase is used in the texts.

    A usage is the whole phrase between word boundaries; case, white space and the encoding of accents do not matter. Of
    overlapping phrases, the first is counted, and of several phrases at one position the longest: "Native American" is
    no usage of "American". Phrases that differ only by case share their count.

    >>> count_phrases(["A deaf man. DEAF, Deafening!", None], ["Deaf", "hard of hearing"])
    PhraseCounts(counts={'Deaf': 2, 'hard of hearing': 0}, n_examples=1, n_left_out=1)
    """
    normalized = {phrase: _normalize(phrase) for phrase in phrases}
    longest_first = "|".join(map(re.escape, sorted({*normalized.values()}, key=len, reverse=True)))
    pattern = re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)")
    counts: Counter[str] = Counter()
    n = 0
    n_left_out = 0
    for text in texts:
        if text is None:
            n_left_out += 1
        else:
            n += 1
            counts.update(pattern.findall(_normalize(text)))
    return PhraseCounts({phrase: counts[key] for phrase, key in normalized.items()}, n, n_left_out)


def _normalize(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
