"""The gendered references at a path, whatever their format, and a fingerprint of them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation.datasets.gendered_translations import (
    LANG,
    language,
    mmhb_axes,
    read_mmhb,
    read_mt_geneval,
    read_references,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import sha256_of

MT_GENEVAL = "geneval-sentences-masculine-{split}.en_{lang}.en"


def load_references(
    path: Path | None, split: str = "dev", languages: Sequence[str] = (), field: str = "languages"
) -> pd.DataFrame:
    """Return the references of a CSV file, or of a folder of MT-GenEval or MMHB, in these languages, else in all.

    Args:
        path: the file or folder.
        split: of MT-GenEval or MMHB.
        languages: FLORES codes or two-letter codes.
        field: what errors call the languages.

    Raises:
        InputError: no references are given, they cannot be read, or lack a language.
    """
    path, wanted = _checked(path), [language(code, field) for code in languages]
    if path.is_file():
        table = read_references(path)
    elif found := sorted(path.glob(MT_GENEVAL.format(split=split, lang="*"))):
        codes = [one.short for one in wanted] or [file.name.split("en_")[1].split(".")[0] for file in found]
        table = pd.concat([read_mt_geneval(path, code, split) for code in codes], ignore_index=True)
    elif found := sorted(path.glob(f"*/{split}.csv")):
        tables = map(mmhb_axes, sorted(path.glob("*_descriptors_full_id.tsv")))
        axes = {name: axis for of_table in tables for name, axis in of_table.items()}
        table = pd.concat([read_mmhb(file, axes) for file in found], ignore_index=True)
    else:
        raise InputError(
            f"references: {path} is no CSV file, and holds neither {MT_GENEVAL.format(split=split, lang='…')} "
            f"(MT-GenEval) nor …/{split}.csv (MMHB); give another folder, or another split than {split!r}."
        )
    missing = {one.code for one in wanted} - set(table[LANG])
    if missing:
        raise InputError(
            f"{field}: {path} has no {', '.join(sorted(missing))}, only {', '.join(sorted(set(table[LANG])))}."
        )
    return table[table[LANG].isin([one.code for one in wanted])].reset_index(drop=True) if wanted else table


def references_sha256(path: Path | None) -> str:
    """Return a SHA-256 over the file, or over the files of the folder.

    Raises:
        InputError: no references are given, or there are none at the path.
    """
    path = _checked(path)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256("".join(sha256_of(file) for file in files).encode()).hexdigest()


def _checked(path: Path | None) -> Path:
    if path is None:
        raise InputError("references: none are given; give a CSV file, or a folder of MT-GenEval or MMHB.")
    if not path.expanduser().exists():
        raise InputError(f"references: there is no {path}; give a CSV file, or a folder of MT-GenEval or MMHB.")
    return path.expanduser()
