"""Measure the gender of a real translator that needs no download from the hub: Apertium, English to Spanish.

# apt-get install apertium-eng-spa    # Debian or Ubuntu, as root
$ python -m benchmarks.apertium       # half a minute of one core

Apertium (Forcada et al. 2011) translates by rules. Two sets are measured (Costa-jussà et al. 2023, §4):

- mt_geneval: sentences that tell the gender of their people (MT-GenEval), with human references.
- patterns: HolisticBias's descriptors in the patterns of the Spanish language pack, where English does not tell the
  gender. The references, `benchmarks/apertium.yaml`, the pack and MMHB's forms, are not checked by native speakers.

Printed are the masculine minus the feminine score with its interval, the shares of translations with the right or with
a masculine gender, the share of translations whose words have both genders although one person is meant, and the share
of one-word descriptors that Apertium does not know.
"""

import csv
import logging
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pandas as pd
import yaml

from benchmarks.measuring import SHARED, parse_options
from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_TEXT,
    FEMININE,
    GENDER,
    LANG,
    MASCULINE,
    REFERENCE,
    comparable_references,
    load_references,
)
from evenhand.evaluation.data.holistic_bias import NONE, generate_prompts, load_taxonomy
from evenhand.evaluation.data.languages import load_language
from evenhand.evaluation.files import write_text
from evenhand.evaluation.metrics.translation_bias.metric import align, make_source_tables
from evenhand.evaluation.metrics.translation_bias.shares import has_marked_words
from evenhand.evaluation.runs.progress import start_logging
from evenhand.evaluation.score import AXIS, DESCRIPTOR, NOUN, TEMPLATE, TEXT, BiasScore
from evenhand.evaluation.settings import ReferenceSettings
from evenhand.recipes.api import measure

WORDS = Path(__file__).with_suffix(".yaml")
PAIR = "eng_Latn-spa_Latn"
MASCULINE_NOUN = "male"  # the column noun_gender of the language pack
SHOWN = ("bleu", "chrf", "translation_gap", "chrf_gap", "gender_accuracy", "masculine_rendering")


def translate(texts: Sequence[str], mark_unknown: bool = False) -> list[str]:
    """Return Apertium's translation of each text; with `mark_unknown`, a "*" precedes each word that it lacks."""
    if shutil.which("apertium") is None:
        raise SystemExit("Apertium is not installed: apt-get install apertium-eng-spa")
    options = [] if mark_unknown else ["-u"]
    command = ["apertium", *options, "eng-spa"]
    found = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    translations = found.stdout.split("\n")[: len(texts)]
    return [" ".join(translation.split()) for translation in translations]


def pattern_references(descriptors: Path) -> pd.DataFrame:
    """Return masculine and feminine Spanish references of English sentences that do not tell the gender.

    Args:
        descriptors: MMHB's file of Spanish descriptors.
    """
    words = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    prompts = generate_prompts(load_language("es", descriptors))
    english_names = {spanish: english for english, spanish in words["descriptors"].items()}
    is_known = prompts[DESCRIPTOR].isin(english_names) & prompts[NOUN].isin([NONE, *words["nouns"]])
    rows = []
    for prompt in prompts[is_known].to_dict("records"):
        descriptor = english_names[prompt[DESCRIPTOR]]
        pattern = words["templates"][prompt[TEMPLATE]]
        singular, plural = words["nouns"].get(prompt[NOUN], ("", ""))
        article = ""
        if singular:
            article = "an " if descriptor[0].lower() in "aeiou" else "a "
        phrase = f"{article}{descriptor} {singular}".strip()
        english = pattern.replace("{noun_phrase}", phrase).replace("{plural_noun_phrase}", f"{descriptor} {plural}")
        gender = MASCULINE if prompt["noun_gender"] == MASCULINE_NOUN else FEMININE
        rows.append(
            {
                ENGLISH_TEXT: english,
                LANG: "es",
                GENDER: gender,
                REFERENCE: prompt[TEXT],
                AXIS: prompt[AXIS],
                DESCRIPTOR: descriptor,
                TEMPLATE: pattern,
            }
        )
    return pd.DataFrame(rows)


def write_translations(references: Path, folder: Path) -> pd.DataFrame:
    """Write Apertium's translations of the references' English sentences, and return them beside the references."""
    table = comparable_references(load_references(ReferenceSettings(name=references, languages=["es"])))
    sources = make_source_tables(table, ["en-xx"])[PAIR]
    translations = translate(sources[TEXT].tolist())
    write_text(folder / f"{PAIR}.txt", "\n".join(translations) + "\n")
    source, target = PAIR.split("-")
    return align(sources.assign(translation=translations), table, source=source, target=target)


def agreement_errors(rows: pd.DataFrame) -> float:
    """Return the share of translations with a masculine and a feminine word, among those with either."""
    is_marked = has_marked_words(rows)
    has_either = is_marked[MASCULINE] | is_marked[FEMININE]
    has_both = is_marked[MASCULINE] & is_marked[FEMININE]
    return float(has_both.sum() / has_either.sum())


def unknown_descriptors() -> tuple[int, int]:
    """Return how many of the paper's one-word descriptors Apertium does not know, and how many there are."""
    words = {descriptor.descriptor for descriptor in load_taxonomy("paper").descriptors}
    single = sorted(word for word in words if " " not in word)
    unknown = [text for text in translate(single, mark_unknown=True) if "*" in text]
    return len(unknown), len(single)


def show(name: str, scores: Sequence[BiasScore], errors: float) -> None:
    """Print a line for each score of a set, and the share of errors of agreement."""
    for score in scores:
        if score.metric in SHOWN and LANG in score.group:
            low, high = score.interval
            gender = score.group.get(GENDER, "")
            print(f"{name}: {score.metric} {gender} {score.value:.3f} [{low:.3f}, {high:.3f}], {score.n:,} sentences")
    print(f"{name}: {errors:.1%} of the translations with gendered words have words of both genders", flush=True)


def main() -> None:
    options = parse_options(
        __doc__,
        data=(SHARED, "the folder of data sets"),
        output_dir=(Path("runs/apertium"), "the folder of references, translations and measurements"),
    )
    start_logging()
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # its warnings about spaces before full stops
    with TemporaryDirectory() as folder:
        with ZipFile(options.data / "mmhb_descriptors" / "MMHB_descriptors.zip") as archive:
            descriptors = archive.extract("MMHB_descriptors/spa_descriptors_full_id.tsv", folder)
        patterns = options.output_dir / "patterns.csv"
        table = pattern_references(Path(descriptors))
        write_text(patterns, table.to_csv(index=False, quoting=csv.QUOTE_MINIMAL))
    for name, references in (("mt_geneval", options.data / "mt_geneval"), ("patterns", patterns)):
        folder = options.output_dir / f"{name}_translations"
        rows = write_translations(references, folder)
        run = measure(
            "apertium-eng-spa",
            metrics=["translation_bias"],
            references={"name": str(references), "languages": ["es"]},
            translation_bias={"translations": str(folder), "tokenize": "13a"},
            output_dir=options.output_dir / name,
        )
        show(name, run.scores, agreement_errors(rows))
    unknown, total = unknown_descriptors()
    print(f"Apertium does not know {unknown} of the {total} descriptors of one word")


if __name__ == "__main__":
    main()
