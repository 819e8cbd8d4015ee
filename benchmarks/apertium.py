"""Measure the gender of a real translator that needs no download from the hub: Apertium, with three languages.

# apt-get install apertium-eng-spa apertium-fr-es    # Debian or Ubuntu, as root
$ python -m benchmarks.apertium                      # a minute of one core

Apertium (Forcada et al. 2011) translates by rules. Three sets are measured (Costa-jussà et al. 2023, §4):

- mt_geneval: sentences that tell the gender of their people (MT-GenEval), with human references; from and into English.
- patterns: HolisticBias's descriptors in the patterns of the Spanish language pack, where English does not tell the
  gender; from and into English. The references, `benchmarks/apertium.yaml`, the pack and MMHB's forms, are not checked
  by native speakers.
- spanish_french: MT-GenEval's sentences that have a Spanish and a French reference, from each into the other.

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
from evenhand.api import measure
from evenhand.evaluation import columns
from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_LANGUAGE,
    ENGLISH_TEXT,
    FEMININE,
    GENDER,
    LANG,
    MARKED,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
    comparable_references,
    load_references,
    read_mt_geneval,
)
from evenhand.evaluation.data.holistic_bias import NONE, generate_prompts, load_taxonomy
from evenhand.evaluation.data.language.languages import load_language
from evenhand.evaluation.files import write_text
from evenhand.evaluation.metrics.translation_bias.metric import align, make_source_tables
from evenhand.evaluation.metrics.translation_bias.shares import has_marked_words
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.runs.progress import start_logging
from evenhand.evaluation.score import BiasScore

WORDS = Path(__file__).with_suffix(".yaml")
MODES = {  # the name that Apertium has for a pair of FLORES codes
    "eng_Latn-spa_Latn": "eng-spa",
    "spa_Latn-eng_Latn": "spa-eng",
    "fra_Latn-spa_Latn": "fr-es",
    "spa_Latn-fra_Latn": "es-fr",
}
WITH_ENGLISH = ("en-xx", "xx-en")
MASCULINE_NOUN = "male"  # the column noun_gender of the language pack
SHOWN = ("bleu", "chrf", "translation_gap", "chrf_gap", "gender_accuracy", "masculine_rendering")


def translate(texts: Sequence[str], mode: str = "eng-spa", mark_unknown: bool = False) -> list[str]:
    """Return Apertium's translation of each text; with `mark_unknown`, a "*" precedes each word that it lacks."""
    if shutil.which("apertium") is None:
        raise SystemExit("Apertium is not installed: apt-get install apertium-eng-spa apertium-fr-es")
    options = [] if mark_unknown else ["-u"]
    command = ["apertium", *options, mode]
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
    is_known = prompts[columns.DESCRIPTOR].isin(english_names) & prompts[columns.NOUN].isin([NONE, *words["nouns"]])
    rows = []
    for prompt in prompts[is_known].to_dict("records"):
        descriptor = english_names[prompt[columns.DESCRIPTOR]]
        pattern = words["templates"][prompt[columns.TEMPLATE]]
        singular, plural = words["nouns"].get(prompt[columns.NOUN], ("", ""))
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
                REFERENCE: prompt[columns.TEXT],
                columns.AXIS: prompt[columns.AXIS],
                columns.DESCRIPTOR: descriptor,
                columns.TEMPLATE: pattern,
            }
        )
    return pd.DataFrame(rows)


def common_references(folder: Path, languages: Sequence[str]) -> pd.DataFrame:
    """Return MT-GenEval's references of the sentences that all `languages` have, numbered by their English versions."""
    tables = []
    for language in languages:
        table = read_mt_geneval(folder, language)
        english = table.groupby(SENTENCE_ID, sort=False)[ENGLISH_TEXT].transform("\n".join)  # of both genders
        tables.append(table.assign(**{SENTENCE_ID: english}))
    table = pd.concat(tables).drop_duplicates([SENTENCE_ID, LANG, GENDER])
    n_languages = table.groupby(SENTENCE_ID)[LANG].transform("nunique")
    common = table[n_languages == len(languages)]
    numbers = pd.factorize(common[SENTENCE_ID])[0].astype(str)
    return common.assign(**{SENTENCE_ID: numbers}).drop(columns=MARKED)


def write_translations(
    references: Path, languages: Sequence[str], directions: Sequence[str], folder: Path
) -> dict[str, pd.DataFrame]:
    """Write Apertium's translations of all sentences; return pair of languages → translations and references."""
    table = comparable_references(load_references(ReferenceSettings(name=references, languages=languages)))
    aligned = {}
    for pair, sentences in make_source_tables(table, directions).items():
        translations = translate(sentences[columns.TEXT].tolist(), MODES[pair])
        write_text(folder / f"{pair}.txt", "\n".join(translations) + "\n")
        source, target = pair.split("-")
        aligned[pair] = align(sentences.assign(translation=translations), table, source=source, target=target)
    return aligned


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


def show(name: str, scores: Sequence[BiasScore]) -> None:
    """Print a line for each defined score of a pair of languages in a set."""
    for score in scores:
        if score.metric in SHOWN and LANG in score.group and score.interval is not None:
            low, high = score.interval
            pair = " ".join(score.group.values())
            print(f"{name}: {score.metric} {pair} {score.value:.3f} [{low:.3f}, {high:.3f}], {score.n:,} sentences")


def measure_set(name: str, references: Path, languages: Sequence[str], directions: Sequence[str], folder: Path) -> None:
    """Translate a set of references by Apertium, measure the translations, and print the scores."""
    translations = folder / f"{name}_translations"
    aligned = write_translations(references, languages, directions, translations)
    run = measure(
        "apertium",
        metrics=["translation_bias"],
        references={"name": str(references), "languages": list(languages)},
        translation_bias={"translations": str(translations), "tokenize": "13a", "directions": list(directions)},
        output_dir=folder / name,
    )
    show(name, run.scores)
    for pair, rows in aligned.items():
        if not pair.endswith(ENGLISH_LANGUAGE.code):
            errors = agreement_errors(rows)
            print(f"{name}: {pair} {errors:.1%} of the translations with gendered words have words of both genders")


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
        patterns = pattern_references(Path(descriptors))
    mt_geneval = options.data / "mt_geneval"
    tables = {"patterns": patterns, "spanish_french": common_references(mt_geneval, ["es", "fr"])}
    files = {name: options.output_dir / f"{name}.csv" for name in tables}
    for name, table in tables.items():
        write_text(files[name], table.to_csv(index=False, quoting=csv.QUOTE_MINIMAL))
    measure_set("mt_geneval", mt_geneval, ["es"], WITH_ENGLISH, options.output_dir)
    measure_set("patterns", files["patterns"], ["es"], WITH_ENGLISH, options.output_dir)
    measure_set("spanish_french", files["spanish_french"], ["es", "fr"], ["xx-xx"], options.output_dir)
    unknown, total = unknown_descriptors()
    print(f"Apertium does not know {unknown} of the {total} descriptors of one word")


if __name__ == "__main__":
    main()
