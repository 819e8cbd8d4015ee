"""docs/reproduce.md: its commands are valid, and what they write has the tables and columns that the page names."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from evenhand.recipes.cli import main
from tests import tiny_checkpoints

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reproduce.md"
ROWS = [line.split(" | ")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.count(" | ") > 2]
COMMANDS = sorted({command for cell in ROWS for command in re.findall(r"`evenhand ([^`]+)`", cell)})
MASKED = "package:evenhand/recipes/testbed/masked_model"
TESTBED = "package:evenhand/recipes/testbed/"
PAIRS = ["--sentence_pairs.pairs", f"{TESTBED}pairs.csv", "--sentences.limit", "40"]
FEW = ["--prompts.descriptors", "26"]
# Config → arguments with which it takes seconds. Tests of each command hold the tables of the others.
SMALL = {
    "paper_pairs": ["--model", MASKED, *PAIRS],
    "paper_likelihood": ["--model", f"{TESTBED}language_model", *FEW],
    "seat": ["--model", MASKED, *FEW],
}


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


@pytest.mark.slow
@pytest.mark.parametrize("config", SMALL)
def test_the_report_has_the_tables_and_columns_that_the_page_names(config, tmp_path):
    (cell, *others) = [cell for cell in ROWS if re.search(rf"--config {config}\b[^_]", cell) and "“" in cell]
    command = re.findall(r"`evenhand ([^`]+)`", cell)[0]
    name, *arguments = shlex.split(command)
    flags = [*SMALL[config], "--report_to", "none", "--output_dir", str(tmp_path / "run")]
    assert main([name, *arguments, *flags]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for title, columns in (table for row in (cell, *others) for table in named_tables(row)):
        assert title in page
        heads = [page[found.start() :].partition("</thead>")[0] for found in re.finditer(re.escape(title), page)]
        assert any(all(column in head for column in columns) for head in heads), title


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
