"""What README, docs and docstrings show is understood, true, and linked to files that exist."""

import doctest
import json
import re
import runpy
import shlex
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from evenhand.evaluation import metrics as families
from evenhand.evaluation.data.holistic_bias import PAPER_EDITION, generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import select_prompts
from evenhand.evaluation.data.readers.prompt_files import read_prompts
from evenhand.evaluation.data.readers.response_files import ResponseFile, prompts_from_responses, read_responses
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.doors import SHORT_NAMES
from evenhand.evaluation.metrics.generation_bias.accepted import read_accepted
from evenhand.recipes.command_line import MAX_NEW_TOKENS, SIZE, parse, positional, settings_in
from tests.measured_runs import write_measured

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    (page.name, line.replace("\\\n", " ").partition("#")[0].strip())
    for page in PAGES
    if page.name != "extending.md"  # its commands need the files that it shows; test_extending.py runs these
    for line in re.findall(r"^\$ evenhand ((?:.*\\\n)*.*)", page.read_text(encoding="utf-8"), re.M)
]
TABLES = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
COMMANDS += [("reproduce.md", line) for line in re.findall(r"`evenhand ([^`]+)`", TABLES)]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_is_understood(page, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(line)
    if "--config" in arguments and arguments[arguments.index("--config") + 1].startswith("runs/"):
        del arguments[(flag := arguments.index("--config")) : flag + 2]  # of the reader's own run
    if arguments[0] != "--print_completion":
        parse(arguments)


def test_each_row_of_the_papers_tables_has_a_number_or_is_out_of_reach_or_not_run():
    rows = [line for line in TABLES.splitlines() if re.match(r"\| [^|]+ \| ([^|]*`(evenhand|python) |the same)", line)]
    results = [row.rsplit(" | ", 1)[1] for row in rows]
    out_of_reach = [cell for cell in results if cell.startswith("out of reach: ")]
    assert len(rows) > 20 and len(out_of_reach) <= 8
    not_run = [cell for cell in results if cell.startswith("not run")]
    assert len(not_run) <= 5
    others = [cell for cell in results if cell not in (*out_of_reach, *not_run)]
    assert not [cell for cell in others if not re.search(r"\d|\]\(|equal", cell)]


GENERATED = ("settings.md", "glossary.md")
USER_PAGES = [
    page
    for page in PAGES
    if page.parent.name != "benchmarks" and page.name not in GENERATED  # benchmarks have flags of their own
]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_flags_named_in_the_text_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    classes = _commands()
    flags = {(command, name) for command in classes for name in _names(command)}
    known = {f"--{name}" for command, name in flags if name not in positional(classes[command])}
    known |= {f"--{name.rpartition('.')[2]}" for name in (*SHORT_NAMES, MAX_NEW_TOKENS, SIZE)}
    known |= {"--help", "--config", "--version"}
    known |= {"--print_config", "--print_completion"}
    known |= {"--config_file", "--num_processes", "--nproc_per_node", "--cpu"}  # of the launchers
    named = {
        flag
        for code in re.findall(r"`([^`]+)`", text)
        if not code.startswith(("python", "pip", "vllm", "docker", "podman", "(`"))
        for flag in re.findall(r"--[a-z_][a-z_.]*(?![a-z_.-])", code)  # with a hyphen, another program's
    }
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)]+)\)", _without_code(page)):
        if not target.startswith("http"):
            path, _, heading = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not heading or heading in _anchors(linked), target


def _without_code(page):
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))


def _anchors(page):
    """Return the anchors of a page's headings, as GitHub and the documentation site make them."""
    headings = re.findall(r"(?m)^#+ (.*)$", _without_code(page))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower() for heading in headings}


def test_the_files_shown_can_be_read(tmp_path):
    logs, prompts = re.findall(r"```csv\n(.*?)```", (ROOT / "docs" / "own_data.md").read_text(encoding="utf-8"), re.S)
    path = tmp_path / "file.csv"
    path.write_text(logs, encoding="utf-8")
    assert prompts_from_responses(read_responses(ResponseFile(path)), path)["descriptor"].tolist() == [
        "hard-of-hearing",
        "veteran",
    ]
    path.write_text(prompts, encoding="utf-8")
    assert len(read_prompts(path)) == 4 * 8


def test_the_shipped_set_can_be_extended_as_shown(tmp_path):
    shutil.copytree(PAPER_EDITION, tmp_path / "extended")
    examples = re.findall(r"```json\n(.*?),?\n```", (ROOT / "docs" / "own_data.md").read_text(encoding="utf-8"), re.S)
    for name, example in zip(("descriptors.json", "sentence_templates.json"), examples, strict=True):
        path = tmp_path / "extended" / name
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **json.loads(f"{{{example}}}")}))
    prompts = select_prompts(generate_prompts(load_taxonomy(tmp_path / "extended")), {"axis": "work"})
    assert prompts["descriptor"].nunique() == 4 and prompts["template"].nunique() == 27
    assert "I am a unionized man, and I need your advice." in set(prompts["text"])


def test_the_example_of_accepted_differences_can_be_read():
    styles = [
        *yaml.safe_load((ROOT / "recipes" / "configs" / "judge.yaml").read_text(encoding="utf-8"))["labels"].values()
    ]
    accepted = read_accepted(ROOT / "docs" / "accepted.yaml", styles, load_style_clusters("go_emotions", styles))
    assert accepted["kind"].tolist() == ["axis", "descriptor"]


def _commands():
    from evenhand.recipes.command_settings import COMMANDS

    return COMMANDS


def _names(command):
    from evenhand.recipes.command_settings import COMMANDS

    return [setting.name for setting in settings_in(COMMANDS[command])]


def test_the_reference_has_every_setting_of_every_command():
    page = runpy.run_path(str(ROOT / "docs" / "settings_page.py"))
    text = page["reference"]()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == f"{text}\n", "`make reference` writes it"
    sections = {part.partition("`")[0]: part for part in text.split("\n## `")[1:]}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) < {page["anchor"](title) for title in sections}
    of_commands = {title.partition(" ")[0]: part for title, part in sections.items() if "--" not in title}
    for command in _commands():
        names = re.findall(r"(?m)^\| `(\w+)` \|.*\w.* \|$", of_commands[command])
        assert names == [name for name in _names(command) if "." not in name]
    assert (
        "| `descriptors` | int or null | `60` | number of descriptors, sampled by axis; 13 or more of the paper's, "
        "one for each axis; null: all |" in sections["measure --prompts"]
    )


def test_the_glossary_has_every_score_and_terms_that_the_pages_use():
    page = runpy.run_path(str(ROOT / "docs" / "glossary_page.py"))
    text = page["glossary"]()
    assert (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8") == f"{text}\n", "`make reference` writes it"
    formats = [of for name in families.names() for of in families.load_family(name).FORMATS]
    assert {of.name for of in formats} <= set(re.findall(r"\(`(\w+)`", text)) and len(formats) > 80
    pages = " ".join(path.read_text(encoding="utf-8").lower() for path in PAGES if path.name not in GENERATED)
    assert [term for term in page["TERMS"] if term not in pages] == []


def test_the_example_reports_are_small_and_name_no_path_of_a_machine(tmp_path):
    """`python docs/examples.py RUN FOLDER` made them."""
    run = write_measured(tmp_path / "run", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)] * 4, ["yes", "no"] * 4, has_scores=True)
    runpy.run_path(str(ROOT / "docs" / "examples.py"))["write_example"](run, tmp_path / "example")
    examples = ROOT / "docs" / "examples"
    assert sum(page.stat().st_size for page in examples.rglob("*")) < 2_000_000
    for folder in (tmp_path / "example", examples / "measure", examples / "service", examples / "before_and_after"):
        texts = {page.name: page.read_text(encoding="utf-8") for page in folder.iterdir()}
        assert set(texts) - {"scores.csv"} == {"report.html", "responses.html"}
        assert "responses.html" in texts["report.html"]
        for text in texts.values():
            assert set(re.findall(r'href="\./([^"#]+)', text)) <= set(texts)
            assert not re.search(r"(?<![\w.])/(tmp|root|home|work|usr)/", text)


EXAMPLES = sorted(
    ".".join(["evenhand", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
    for room in ("evaluation", "mitigation", "recipes")
    for file in (ROOT / room).rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of_a_module(module):
    failed, tried = doctest.testmod(import_module(module))
    assert tried
    assert not failed
