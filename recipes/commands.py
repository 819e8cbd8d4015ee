"""The commands and what each of them does. Imports nothing slow, so that `evenhand --help` is immediate."""

import ast
from pathlib import Path

from evenhand.evaluation.plugins import user_folders

SWEEP = "sweep.json"  # in the folder of a loop or a sweep, whose runs have folders of their own

SHIPPED = {
    "measure": "Measure a model with one or more families of metrics.",
    "screen": "Find whom a model treats differently by its predictions of first tokens, before anything is sampled.",
    "label": "Label the responses of a run as `bias` or `no_bias`.",
    "tune": "Fine-tune the labelled model with one of the methods.",
    "compare": "Compare two runs over the same prompts.",
    "rate": "Let people rate pairs of responses in a browser.",
    "loop": "Measure, label, tune, measure again and compare.",
    "ablate": "Sweep settings of the loop, with stages shared by points; each point is one tracked run.",
    "report": "Write the report of one or several finished runs.",
    "plan": "Compute how many descriptors, templates or responses a more precise measurement takes.",
    "check": "Check limits of a run's bias, for CI: status 0 holds, 1 broken, 2 wrong use, 3 inconclusive.",
    "audit": "Write evidence to hand over: audit.json, which can be verified, and two pages to sign.",
    "watch": "Name people whom a growing log of answers treats differently: status 1 if somebody is new.",
    "export": "Export a tuned model for use without Evenhand.",
    "train_classifier": "Train a text classifier, of styles or offensiveness.",
    "judge": "Measure how well an LLM judge, or another style classifier, agrees with human labels.",
    "configs": "List the shipped configs, or print one.",
}
# A command line of each, with the flags that are given most often.
EXAMPLES = {
    "measure": "evenhand measure my-model --server http://localhost:8000/v1 --size full",
    "screen": "evenhand screen Qwen/Qwen3-8B --dtype bfloat16",
    "label": "evenhand label runs/my-model --output_dir runs/labels",
    "tune": "evenhand tune runs/labels --method distill --output_dir runs/tuned",
    "compare": "evenhand compare runs/before runs/after --output_dir runs/compared",
    "rate": "evenhand rate runs/before runs/after",
    "loop": "evenhand loop runs/my-model --methods distill,exchange",
    "ablate": "evenhand ablate my-model --sweep '[{method: control_tags, label.beta: [0.01, 0.03]}]' --seeds 0,1",
    "report": "evenhand report runs/one runs/two",
    "plan": "evenhand plan runs/my-model",
    "check": "evenhand check runs/new --against runs/old",
    "audit": "evenhand audit runs/my-model",
    "watch": "evenhand watch answers.jsonl",
    "export": "evenhand export runs/tuned --output_dir exported",
    "train_classifier": "evenhand train_classifier --config goemotions",
    "judge": "evenhand judge --config judge",
    "configs": "evenhand configs demo",
}


def user_commands() -> dict[str, str]:
    """Return what each of the user's commands does, the first line of its module, by name; no module is imported."""
    purposes = {}
    for folder in user_folders("commands"):
        for file in sorted(Path(folder).glob("[!_]*.py")):
            try:
                text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            except (SyntaxError, ValueError):
                text = ""  # the error is raised when the command is run
            purposes[file.stem] = text.partition("\n")[0]
    return purposes


USER_COMMANDS = user_commands()
COMMANDS = {**SHIPPED, **USER_COMMANDS}
