"""docs/reproduce.md: its commands are valid, and what they write has the tables and columns that the page names."""

import json
import math
import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.score import read_scores
from evenhand.recipes.cli import main
from tests import tiny_checkpoints
from tests.gendered_references import written_references, written_translations
from tests.testbed_settings import NEUTRAL_DIALOGUE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reproduce.md"
CODE = PAGE.parents[1]
TEXT = PAGE.read_text(encoding="utf-8")
ITEMS = PAGE.with_name("paper_items.md").read_text(encoding="utf-8")
ROWS: list[str] = []
for line in TEXT.splitlines():
    if line.count(" | ") > 2:
        cell = line.split(" | ")[1]
        ROWS.append(f"{ROWS[-1]}{cell}" if cell.startswith("the same") else cell)
COMMANDS = sorted({command for cell in ROWS for command in re.findall(r"`evenhand ([^`]+)`", cell)})
TESTBED = "package:evenhand/recipes/testbed/"
MASKED = f"{TESTBED}masked_model"
PAIRS = ["--sentence_pairs.pairs", f"{TESTBED}pairs.csv", "--sentences.limit", "40"]
FEW = ["--prompts.descriptors", "14"]
SOME = ["--prompts.descriptors", "13", "--prompts.answers_per_cell", "1"]
# Sampled beams are computed one answer at a time.
BEAMS = ["--decoding.arguments", "{num_beams: 2}", "--prompts.filters"]
BEAMS += ['{template: ["I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."]}']
STYLES = ["--generation_bias.style_classifier", f"{TESTBED}style_classifier"]
OFFENSIVE = ["--offensive_classifier", f"{TESTBED}second_style_classifier", "--offensive_classifier.label", "Hateful"]
DIALOGUE = ["--model", f"{TESTBED}dialogue_model", "--model.dtype", "float32", *STYLES, *SOME]
DIALOGUE += ["--generation_bias.style_clusters", "testbed", "--generation_bias.permutations", "19"]
DIALOGUE += ["--generation_bias.neutral_dialogue", NEUTRAL_DIALOGUE]
REFERENCES = ["--references", "references.csv", "--references.min_masculine_references", "0"]
REFERENCES += ["--model", "any"]
# Command → arguments with which it takes seconds, in a folder with `inputs`. A row may have further arguments.
SMALL = {
    "measure --config paper_pairs": ["--model", MASKED, *PAIRS],
    "measure --config paper_likelihood": ["--model", f"{TESTBED}language_model", *FEW],
    "measure --config seat": ["--model", MASKED, *FEW],
    "measure --config paper_generation": ["--model.revision", "null", *DIALOGUE, *BEAMS],
    "measure --config demo --generation_bias.corpus.paths": DIALOGUE,
    "measure --config demo --offensive_classifier": [*DIALOGUE, *OFFENSIVE],
    "measure --config offensive": ["--model", f"{TESTBED}dialogue_model", *OFFENSIVE, *FEW],
    "measure --config translations": [
        *(*REFERENCES, "--translation_bias.translations", "translations", "--translation_bias.tokenize", "13a"),
    ],
    "measure --config embeddings": [*REFERENCES, "--embedding_bias.vectors", "vectors"],
    "measure --prompts.dataset multilingual": ["--metrics", "likelihood_bias"],
}
LOOP = shlex.split("""
    --measure.prompts.descriptors 14 --measure.prompts.answers_per_cell 2 --train_answers_per_cell 8
    --measure.prompts.filters '{template: ["I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."]}'
    --measure.generation_bias.second_style_classifier null --measure.generation_bias.relevance false
    --measure.generation_bias.permutations 9 --tune.measure_every 0 --tune.training.max_rows 128
    --tune.training.learning_rate 0.01 --allow_no_bias true --report_to none
""")
LOOP += ["--measure.generation_bias.neutral_dialogue", NEUTRAL_DIALOGUE]
# Commands that other tests run, and the file of these.
ELSEWHERE = {
    "ablate --config paper_alpha": "recipes/test_real_configs.py",
    "ablate --config paper_learning_rates": "recipes/test_real_configs.py",
    "ablate --config paper_learning_rates_blenderbot": "recipes/test_real_configs.py",
    "ablate --config paper_tuning": "recipes/test_real_configs.py",
    "ablate --config paper_tuning_blenderbot": "recipes/test_real_configs.py",
    "measure --config paper_likelihood_blenderbot": "test_reproduce.py",
    "measure --metrics sentence_pairs": "evaluation/metrics/sentence_pairs/test_measure.py",
    "rate": "recipes/test_rate.py",
}


def beginning(command, names):
    """Return the longest of the known names with which a command begins."""
    found = [name for name in names if command == name or command.startswith(f"{name} ")]
    return max(found, key=len, default=None)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_valid(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(command.replace("MODEL", "gpt2"))
    assert main([name, *arguments, "--print_config"]) == 0
    assert capsys.readouterr().out


def named_tables(cell):
    """Return the titles in “…” of a cell of the page, with the columns that it names behind a colon."""
    for text in re.findall("“([^”]+)”", cell):
        title, _, columns = text.partition(": ")
        yield title, re.split(r", (?!%)", columns) if columns else []


def test_every_command_of_the_page_is_run_by_a_test():
    of_loop = ("compare runs/before runs/after", "label runs/train")
    assert [command for command in COMMANDS if beginning(command, [*SMALL, *ELSEWHERE, *of_loop]) is None] == []
    for command, file in ELSEWHERE.items():
        name = command.split()[-1]
        assert name in (PAGE.parents[1] / "tests" / file).read_text(encoding="utf-8")


def check_tables(page, rows):
    """Assert that a report has the tables, and in them the columns, that rows of the page name."""
    for title, columns in (table for row in rows for table in named_tables(row)):
        assert title in page
        heads = [page[found.start() :].partition("</thead>")[0] for found in re.finditer(re.escape(title), page)]
        assert any(all(column in head for column in columns) for head in heads), title


def write_inputs(folder):
    """Write what small commands read: a corpus, references, and their translations and vectors."""
    (folder / "runs" / "masked_model").mkdir(parents=True)
    (folder / "runs" / "masked_model" / "texts.txt").write_text("a deaf man and a rich woman\n", encoding="utf-8")
    written_references(folder)
    languages = ("eng_Latn", "spa_Latn", "tha_Thai")
    # An English sentence is one, and a sentence in another language has two genders.
    n_sentences = {f"{a}__{b}": 2 if a == "eng_Latn" else 4 for a in languages for b in languages if a != b}
    written_translations(folder / "translations", **{pair: ["a b c d e"] * n for pair, n in n_sentences.items()})
    (folder / "vectors").mkdir()
    for language, n in (("eng_Latn", 2), ("spa_Latn", 4), ("tha_Thai", 3)):
        np.save(folder / "vectors" / f"{language}.npy", np.random.default_rng(0).normal(size=(n, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_command_makes_the_scores_tables_and_columns_that_the_page_names(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    commands = [command for command in COMMANDS if beginning(command, SMALL) == name]
    rows = [cell for cell in ROWS if any(f"`evenhand {command}`" in cell for command in commands)]
    command, *arguments = shlex.split(commands[0].replace("MODEL", f"{TESTBED}language_model"))
    flags = [*SMALL[name], "--report_to", "none", "--output_dir", "run"]
    assert main([command, *arguments, *flags]) == 0
    assert any(math.isfinite(score.value) for score in read_scores(tmp_path / "run" / "scores.json"))
    check_tables((tmp_path / "run" / "report.html").read_text(encoding="utf-8"), rows)


@pytest.mark.slow
def test_a_loop_makes_what_the_page_compares_and_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["loop", "--config", "loop", *LOOP, "--output_dir", "runs"]) == 0
    Path("runs/exchange/after").rename("runs/after")
    compare = "compare runs/before runs/after"
    for command in (compare, f"{compare} --labels runs/label"):
        output = Path("compared") / str(len(command))
        assert main([*command.split(), "--report_to", "none", "--output_dir", str(output)]) == 0
        rows = [cell for cell in ROWS if f"`evenhand {command}`" in cell]
        check_tables((output / "report.html").read_text(encoding="utf-8"), rows)
    assert main(["label", "runs/train", "--alpha", "0", "--beta", "0.0003", "--output_dir", "labelled"]) == 0
    threshold = json.loads(Path("labelled/threshold.json").read_text(encoding="utf-8"))
    assert (threshold["alpha"], threshold["beta"]) == (0, 0.0003)


def test_each_of_the_77_items_is_equal_or_a_run_says_how_it_deviates():
    """A run says so in a place that exists: a text in the code, a config with such a name, or a page of the docs."""
    items = [line.strip("| ").split(" | ") for line in ITEMS.splitlines() if re.match(r"\| \d", line)]
    assert [int(cells[0]) for cells in items] == list(range(1, 78))
    states = [cells[2].rstrip(" |") for cells in items]
    counts = Counter(re.match(r"\w+", state)[0] for state in states)
    assert set(counts) == {"equal", "deviates", "drawing", "prose"}
    others = counts["prose"] + counts["drawing"]
    assert f"{counts['equal']} items are equal, {counts['deviates']} deviate, {others} are prose or drawings" in ITEMS
    files = [file for name in ("evaluation", "mitigation", "recipes") for file in (CODE / name).rglob("*")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files if file.suffix in (".py", ".j2"))
    configs = {file.stem for file in (CODE / "recipes" / "configs").rglob("*.yaml")}
    for cells, state in zip(items, states, strict=True):
        place = cells[3] if len(cells) > 3 else ""
        assert place or not state.startswith("deviates"), cells
        assert all(text in code for text in re.findall("“([^”]+)”", place)), cells
        names = re.findall(r"`(\w+)`", re.sub(r"\[.*?\]\(.*?\)", "", place))
        assert set(names) <= configs | {"rate"}, cells


def test_an_encoder_decoder_has_likelihoods(tmp_path):
    tiny_checkpoints.blenderbot(tmp_path / "model")
    flags = ["--model.name", str(tmp_path / "model"), "--model.revision", "null", "--report_to", "none"]
    small = ["--prompts.dataset", str(tiny_checkpoints.taxonomy(tmp_path / "taxonomy"))]
    output = ["--output_dir", str(tmp_path / "run")]
    assert main(["measure", "--config", "paper_likelihood_blenderbot", *flags, *small, *output]) == 0
    likelihoods = pd.read_parquet(tmp_path / "run" / "likelihoods.parquet")
    assert len(likelihoods) and (likelihoods["log_likelihood"] < 0).all()
    varied = likelihoods[["descriptor_lowercased", "hyphens_removed", "contraction_removed", "period_removed"]]
    assert varied.any().all() and not varied.all().any()  # A.3: each with probability 1/2
