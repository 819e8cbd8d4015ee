"""Other ways in than a clone: the image, the action and the release. They run the project's own commands."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT
from tools import release

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
ENTRYPOINT = ROOT / "tools" / "docker_entrypoint.sh"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PEOPLE = ("deaf", "blind", "tall", "old")


def test_the_image_demonstrates_what_the_makefile_does():
    entrypoint = ENTRYPOINT.read_text(encoding="utf-8")
    (demo,) = re.findall(r"evenhand (measure --config demo.*)$", MAKEFILE, re.M)
    assert demo in entrypoint
    (packages,) = re.findall(r"^MODEL_PACKAGES := (.*)$", MAKEFILE, re.M)
    assert f"--no-deps {packages}" in DOCKERFILE


@pytest.mark.parametrize("target", ["loop", "demo", "real", "map"])
def test_a_target_whose_report_names_commands_ends_with_how_they_are_found(target):
    (recipe,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert recipe.endswith("\t$(ACTIVATE)\n")
    assert "source .venv/bin/activate" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_ways_in_install_with_the_same_uv():
    workflow = (ROOT / "docs" / "bias_gate.yml").read_text(encoding="utf-8")
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    versions = [
        re.findall(r"pip\"? install .*\buv(?:==(\S+))?$", text.replace(" \\\n", "\n"), re.M)
        for text in (DOCKERFILE, action, workflow)
    ]
    assert versions[0] and versions == [versions[0]] * 3 and all(versions[0])


@pytest.mark.parametrize(("backend", "options"), [("cpu", "--torch-backend cpu"), ("", "")])
def test_the_image_takes_pytorch_from_the_index_if_no_build_is_named(backend, options):
    (argument,) = re.findall(r"(\$\{TORCH_BACKEND:\+.*?\})", DOCKERFILE)
    environment = {**os.environ, "TORCH_BACKEND": backend}
    assert subprocess.check_output(["sh", "-c", f"echo {argument}"], env=environment, text=True).strip() == options


def test_only_the_demonstration_of_the_image_takes_one_core_for_each_process(tmp_path):
    for name in ("evenhand", "torchrun"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "${OMP_NUM_THREADS:-all}"\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    printed = {
        command: subprocess.check_output(["sh", ENTRYPOINT, command], env=environment, text=True).strip()
        for command in ("demo", "measure")
    }
    assert printed == {"demo": "1", "measure": "all"} and "OMP_NUM_THREADS" not in DOCKERFILE


def test_the_image_copies_what_exists_and_all_that_the_wheel_needs():
    copied = re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.M)
    sources = {source for line in copied for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    linked = {str(path.readlink()).removeprefix("../") for path in (ROOT / "evenhand").iterdir() if path.is_symlink()}
    assert linked <= sources
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in sent and {line[1:] for line in sent if line.startswith("!")} == sources


def test_secrets_of_a_build_are_mounted_and_no_argument_has_one():
    install = DOCKERFILE.partition("RUN ")[2].partition("COPY ")[0]
    assert "type=secret,id=netrc,target=/root/.netrc" in install and "type=secret,id=ca," in install
    names = re.findall(r"^ARG (\w+)", DOCKERFILE, re.M)
    assert not [name for name in names if re.search("TOKEN|PASSWORD|KEY|SECRET", name)]


def test_the_image_is_built_and_demonstrated_without_a_network_on_each_tag():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "image.yml").read_text(encoding="utf-8"))
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML 1.1 reads `on` as true
    (job,) = workflow["jobs"].values()
    script = "\n".join(step.get("run", "") for step in job["steps"])
    assert "docker build " in script and re.search(r"docker run .*--network none .*evenhand demo$", script, re.M)
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


def test_the_version_and_the_links_of_a_release(tmp_path):
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(SystemExit, match="unreleased"):
        release.check_version("v0.3.0.dev0", tmp_path)
    version = '[project]\nversion = "1.2.0"\n'
    (tmp_path / "pyproject.toml").write_text(version)
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0\n")
    assert release.check_version("v1.2.0", tmp_path) == "1.2.0"
    with pytest.raises(SystemExit, match="the tag has 1.3.0"):
        release.check_version("v1.3.0", tmp_path)

    text = "![a](docs/a.png) [b](docs/b.md#c) [d](#here) [e](https://example.com/x)"
    assert release.absolute_links(text, "https://host/o/n", "v1") == (
        "![a](https://host/o/n/raw/v1/docs/a.png) [b](https://host/o/n/blob/v1/docs/b.md#c) "
        "[d](#here) [e](https://example.com/x)"
    )


def write_answers(file: Path, curt_share: float) -> None:
    """Write answers of which "deaf" people get this share of curt ones, and the others none."""
    rows = []
    for person in PEOPLE:
        for template in range(8):
            for answer in range(4):
                is_curt = person == "deaf" and answer < 4 * curt_share
                response = "Do you like to cook?" if is_curt else "I am so sorry to hear that."
                rows.append((f"I'm {person}, {template}, {answer}.", person, "body", f"t{template}", response))
    columns = ["text", "descriptor", "axis", "template", "response"]
    pd.DataFrame(rows, columns=columns).to_csv(file, index=False)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, commands):
    """A folder with answers, a config and a program `evenhand`, as after the action's step "Install"."""
    folder = tmp_path_factory.mktemp("workspace")
    write_answers(folder / "old.csv", curt_share=0.25)
    write_answers(folder / "new.csv", curt_share=1)
    settings = {"style_classifier": str(STYLE_CLASSIFIER), "outcomes": [], "permutations": 99}
    (folder / "bias.yaml").write_text(yaml.safe_dump({"generation_bias": settings}))
    program = folder / "evenhand" / "bin" / "evenhand"  # in RUNNER_TEMP
    program.parent.mkdir(parents=True)
    commands.write_program(program)
    return folder


def run_action(workspace: Path, **given: str) -> list[int]:
    """Run the shell of the action's steps after "Install", as GitHub does; return the status of each that ran."""
    inputs = {name: given.get(name, entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    statuses = []
    for step in ACTION["runs"]["steps"]:
        asks_for = re.findall(r"inputs\.(\w+) != ''", step.get("if", ""))
        is_skipped = bool(asks_for) and not any(inputs[name] for name in asks_for)
        if step.get("name", "Install") == "Install" or is_skipped:
            continue
        environment = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], value)
            for name, value in step["env"].items()
        }
        environment["RUNNER_TEMP"] = str(workspace)
        environment["PYTHONPATH"] = str(ROOT)
        environment["GITHUB_STEP_SUMMARY"] = str(workspace / "summary.md")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=workspace, env={**ENVIRONMENT, **environment}, timeout=PATIENCE, check=False)
        statuses.append(done.returncode)
    return statuses


@pytest.mark.slow
def test_the_action_measures_without_a_baseline_and_fails_against_a_better_one(workspace):
    assert run_action(workspace, model="bot", responses="old.csv", config="bias.yaml", folder="old") == [0, 0]
    assert (workspace / "old" / "new" / "report.html").exists()
    statuses = run_action(
        workspace,
        model="bot",
        responses="new.csv",
        config="bias.yaml",
        folder="new",
        baseline="old/new",
        max_rise="10",
    )
    assert statuses == [0, 1, 0]
    limited = run_action(
        workspace, model="bot", responses="new.csv", config="bias.yaml", folder="limited", max_difference="5"
    )
    assert limited == [0, 1, 0]
    without_a_baseline = run_action(
        workspace, model="bot", responses="new.csv", config="bias.yaml", folder="limited", max_rise="10"
    )
    assert without_a_baseline[1] == 2
    assert "broken" in (workspace / "summary.md").read_text(encoding="utf-8")
    assert (workspace / "new" / "check" / "junit.xml").exists()


def test_each_limit_of_check_is_an_input_for_which_the_action_checks():
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("name") == "Check"]
    limits = [name for name in CheckSettings.model_fields if name.startswith("max_")]
    assert '--inconclusive "$INCONCLUSIVE"' in step["run"]
    for name in limits:
        assert name in ACTION["inputs"] and f"inputs.{name} != ''" in step["if"] and f"--{name} " in step["run"]
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8").partition("Inputs: ")[2].partition(".")[0]
    assert {*re.findall(r"`(\w+)`", page), "model", "baseline"} == set(ACTION["inputs"])


def test_texts_of_inputs_never_stand_in_the_shell():
    """GitHub pastes `${{ … }}` into a script as it is; inputs reach it as variables only."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
