"""The notebooks run from the first cell to the last, and none is committed with what a run put into it."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT
from tests.testbed_settings import NEUTRAL_DIALOGUE

nbformat = pytest.importorskip("nbformat", reason="needs nbclient (pip install '.[test]')")
NotebookClient = pytest.importorskip("nbclient", reason="needs nbclient (pip install '.[test]')").NotebookClient
pytest.importorskip("ipykernel", reason="needs ipykernel (pip install '.[test]')")
pytestmark = pytest.mark.slow
COMMAND = "{sys.executable} -m evenhand"  # which would import everything anew
FEWER = {  # people, permutations and neutral dialogues, which take most of the time
    "descriptors: 26": "descriptors: 13",
    "permutations: 19": f"permutations: 9\n    neutral_dialogue: {NEUTRAL_DIALOGUE}",
    "--prompts.descriptors 20": "--prompts.descriptors 14 --generation_bias.permutations 19 "
    f"--generation_bias.neutral_dialogue {NEUTRAL_DIALOGUE}",
}
# The notebooks' kernel is a fork of a process that has imported everything already, like the commands in other tests.
KERNEL = "from ipykernel.kernelapp import launch_new_instance; launch_new_instance(['-f', '{connection_file}'])"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_is_committed_without_outputs_and_runs(file, commands, tmp_path, monkeypatch):
    notebook = nbformat.read(file, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    runs_commands = any(COMMAND in cell.source for cell in code)
    commands.write_program(tmp_path / "evenhand")
    for cell in code:
        for text, small in {COMMAND: str(tmp_path / "evenhand"), **FEWER}.items():
            cell.source = cell.source.replace(text, small)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    kernel = tmp_path / "jupyter" / "kernels" / "forked" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    arguments = [str(tmp_path / "evenhand"), "-c", KERNEL]
    kernel.write_text(json.dumps({"argv": arguments, "display_name": "forked", "language": "python"}), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    options = {"timeout": PATIENCE, "startup_timeout": PATIENCE, "iopub_timeout": PATIENCE, "kernel_name": "forked"}
    NotebookClient(notebook, **options, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in code:  # a command that fails does not stop a notebook
        output_text = "".join(output.get("text", "") for output in cell.outputs)
        assert not re.search(r"^evenhand( \w+)?: |^Traceback", output_text, re.M), output_text
    shown = [output for cell in code for output in cell.outputs if output.output_type == "execute_result"]
    assert any("text/html" in output.data for output in shown)
    assert bool(list(Path(tmp_path, "runs").glob("*/report.html"))) == runs_commands
