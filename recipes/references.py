"""The gendered references that a config names, whatever their format, and fingerprints of them."""

import hashlib
from pathlib import Path

import pandas as pd

from evaluation.datasets.gendered_translations import (
    LANG,
    language,
    mmhb_axes,
    read_mmhb,
    read_mt_geneval,
    read_references,
)
from evaluation.errors import InputError
from evaluation.files import sha256_of
from recipes.config import MeasureConfig

MT_GENEVAL = "geneval-sentences-masculine-{split}.en_{lang}.en"


def load_references(config: MeasureConfig) -> pd.DataFrame:
    """Return the references in the chosen languages: a CSV's, MT-GenEval's or MMHB's (`evaluation.datasets`).

    Raises:
        InputError: no references are given, they cannot be read, or lack a language.
    """
    path, split = _path(config), config.reference_split
    wanted = [language(code) for code in config.languages]
    if path.is_file():
        table = read_references(path)
    elif there := sorted(path.glob(MT_GENEVAL.format(split=split, lang="*"))):
        codes = [one.short for one in wanted] or [file.name.split("en_")[1].split(".")[0] for file in there]
        table = pd.concat([read_mt_geneval(path, code, split) for code in codes], ignore_index=True)
    elif there := sorted(path.glob(f"*/{split}.csv")):
        tables = map(mmhb_axes, sorted(path.glob("*_descriptors_full_id.tsv")))
        axes = {name: axis for of_table in tables for name, axis in of_table.items()}
        table = pd.concat([read_mmhb(file, axes) for file in there], ignore_index=True)
    else:
        raise InputError(
            f"references: {path} is no CSV file, and holds neither {MT_GENEVAL.format(split=split, lang='…')} "
            f"(MT-GenEval) nor …/{split}.csv (MMHB); see --reference_split."
        )
    missing = {one.code for one in wanted} - set(table[LANG])
    if missing:
        raise InputError(
            f"languages: {path} has no {', '.join(sorted(missing))}, only {', '.join(sorted(set(table[LANG])))}."
        )
    return table[table[LANG].isin([one.code for one in wanted])].reset_index(drop=True) if wanted else table


def references_sha256(config: MeasureConfig) -> str:
    """Return a SHA-256 over the file, or over the files of the folder."""
    path = _path(config)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return hashlib.sha256("".join(sha256_of(file) for file in files).encode()).hexdigest()


def _path(config: MeasureConfig) -> Path:
    if config.references is None:
        raise InputError("references: none are given; give a CSV file, or a folder of MT-GenEval or MMHB.")
    path = config.references.expanduser()
    if not path.exists():
        raise InputError(f"references: there is no {path}; give a CSV file, or a folder of MT-GenEval or MMHB.")
    return path
