"""Loading and hashing of gendered reference translations in any supported format."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation.data.gendered_translations import (
    LANG,
    find_language,
    read_mmhb,
    read_mmhb_axes,
    read_mt_geneval,
    read_references,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of

MT_GENEVAL = "geneval-sentences-masculine-{split}.en_{lang}.en"


def load_references(
    path: Path | None, split: str = "dev", languages: Sequence[str] = (), field: str = "languages"
) -> pd.DataFrame:
    """Return the references in a CSV file, or in a folder of MT-GenEval or MMHB.

    The table has the columns of `read_references`.

    Args:
        path: the file or folder.
        languages: FLORES codes or two-letter codes; all languages if empty.
        field: the name of the setting of the languages in errors.

    Raises:
        InputError: `path` is None, the references cannot be read, or they lack a language.
    """
    path, wanted = _check_path(path), [find_language(code, field) for code in languages]
    if path.is_file():
        table = read_references(path)
    elif files := sorted(path.glob(MT_GENEVAL.format(split=split, lang="*"))):
        codes = [language.short for language in wanted] or [file.name.split("en_")[1].split(".")[0] for file in files]
        table = pd.concat([read_mt_geneval(path, code, split) for code in codes], ignore_index=True)
    elif files := sorted(path.glob(f"*/{split}.csv")):
        axes: dict[str, str] = {}
        for file in sorted(path.glob("*_descriptors_full_id.tsv")):
            axes |= read_mmhb_axes(file)
        table = pd.concat([read_mmhb(file, axes) for file in files], ignore_index=True)
    else:
        raise InputError(
            f"references: {path} is no CSV file, and has neither {MT_GENEVAL.format(split=split, lang='…')} "
            f"(MT-GenEval) nor …/{split}.csv (MMHB); give another folder, or another split than {split!r}."
        )
    codes, present = {language.code for language in wanted}, set(table[LANG])
    if missing := codes - present:
        raise InputError(f"{field}: {path} has no {', '.join(sorted(missing))}, only {', '.join(sorted(present))}.")
    return table[table[LANG].isin(codes)].reset_index(drop=True) if wanted else table


def references_sha256(path: Path | None) -> str:
    """Return the SHA-256 of a file of references, or of all files in a folder of references.

    Raises:
        InputError: `path` is None or does not exist.
    """
    path = _check_path(path)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256("".join(sha256_of(file) for file in files).encode()).hexdigest()


def _check_path(path: Path | None) -> Path:
    if path is None or not path.expanduser().exists():
        problem = "required" if path is None else f"{path} does not exist"
        raise InputError(f"references: {problem}; give a CSV file, or a folder of MT-GenEval or MMHB.")
    return path.expanduser()
