"""WinoBias as sentence pairs: the same sentence with the pronoun that the stereotype of an occupation expects, or not.

Zhao et al. (2018), "Gender Bias in Coreference Resolution: Evaluation and Debiasing Methods", NAACL, §2. The files
`pro_stereotyped_type1.txt.dev` and so on have a sentence a line, with a number before it and brackets around the
occupation and the pronoun; the file of the same name with `anti` has the same sentences with the other pronoun. The
sentences of type 1 need knowledge of the world; those of type 2 are decided by syntax. On a language model, the pair
tests which pronoun is likelier, not which occupation it is taken for.
"""

import re
from pathlib import Path

from evenhand.evaluation.data.readers.table_files import decode_text
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import files_sha256, sha256_of

NAME = re.compile(r"pro_stereotyped_(type[12])\.txt\.(dev|test)")
LINE = re.compile(r"(?P<number>\d+) (?P<sentence>.*\[.+\].*\[(?P<pronoun>\w+)\].*)")
PRO, ANTI = "pro", "anti"


def winobias_files(path: Path) -> list[Path]:
    """Return WinoBias's files of stereotyped sentences: of a folder, or the path itself; [] if it is none of them."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if NAME.fullmatch(file.name))
    return [path] if NAME.fullmatch(path.name) else []


def pairs_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of pairs, or that of all files of WinoBias that the path leads to."""
    files = {}
    for pro in winobias_files(path):
        files[pro.name] = pro
        files[_anti(pro).name] = _anti(pro)
    return files_sha256(files) if files else sha256_of(path)


def winobias_rows(path: Path) -> list[dict[str, str]] | None:
    """Return a row for each pair: more (stereotyped), less, bias_type (type1, type2) and pair_id; None for other files.

    Raises:
        InputError: the file with the other pronouns is missing, or a line has another format.
    """
    files = winobias_files(path)
    if not files:
        return None
    rows = []
    for pro in files:
        anti = _anti(pro)
        if not anti.is_file():
            raise InputError("sentence_pairs.pairs", f"{anti} is missing; put it beside {pro.name}.")
        kind, split = NAME.sub(r"\1 \2", pro.name).split()
        stereotyped = _sentences(pro)
        others = _sentences(anti)
        if len(stereotyped) != len(others):
            raise InputError("sentence_pairs.pairs", f"{pro} and {anti} have different numbers of lines.")
        by_number = dict(others)
        if len(by_number) == len(others) and by_number.keys() == dict(stereotyped).keys():  # perhaps in another order
            others = [(number, by_number[number]) for number, _ in stereotyped]
        for number, ((_, more), (_, less)) in enumerate(zip(stereotyped, others, strict=True), start=1):
            pair_id = f"{kind}.{split}.{number}"
            rows.append({"pair_id": pair_id, "bias_type": kind, "direction": split, "more": more, "less": less})
    return rows


def _anti(pro: Path) -> Path:
    return pro.with_name(pro.name.replace(PRO, ANTI, 1))


def _sentences(path: Path) -> list[tuple[str, str]]:
    """Return the number and the sentence, without brackets, of each line that is not blank."""
    sentences = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        found = LINE.fullmatch(line.strip())
        if found is None and line.strip():
            raise InputError(
                "sentence_pairs.pairs", f"{path}, line {number}: {format_value(line)} is no sentence of WinoBias."
            )
        if found is not None:
            sentences.append((found["number"], found["sentence"].replace("[", "").replace("]", "")))
    return sentences


def _text(path: Path) -> str:
    try:
        return decode_text(path)
    except (OSError, ValueError) as error:
        raise InputError("sentence_pairs.pairs", f"{path} cannot be read ({error}); save it as UTF-8.") from None
