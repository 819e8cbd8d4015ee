"""Two sentences in two languages that can be checked by eye, and files of translations."""

import csv
from pathlib import Path

COLUMNS = ["sentence_id", "axis", "descriptor", "template", "english", "lang", "gender", "reference"]
ROWS = [
    ["1", "age", "old", "t", "I like old dentists", "spa_Latn", "masculine", "me gustan los dentistas viejos hoy"],
    ["1", "age", "old", "t", "I like old dentists", "spa_Latn", "feminine", "me gustan las dentistas viejas hoy"],
    ["2", "age", "new", "t", "I like new artists", "spa_Latn", "masculine", "me gustan los artistas nuevos hoy"],
    ["2", "age", "new", "t", "I like new artists", "spa_Latn", "feminine", "me gustan las artistas nuevas hoy"],
    ["1", "age", "old", "t", "I like old dentists", "tha_Thai", "neutral", "a b c d e"],
    ["2", "age", "new", "t", "I like new artists", "tha_Thai", "masculine", "a b c d f"],
    ["2", "age", "new", "t", "I like new artists", "tha_Thai", "neutral", "a b c d g"],
]


def written_references(folder: Path) -> Path:
    """Return the path of the rows as a CSV file."""
    path = folder / "references.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *ROWS])
    return path


def written_translations(folder: Path, **files: list[str]) -> Path:
    """Return a folder of translations; eng_Latn__spa_Latn stands for eng_Latn-spa_Latn.txt."""
    folder.mkdir()
    for name, lines in files.items():
        (folder / f"{name.replace('__', '-')}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
