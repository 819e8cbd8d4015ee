"""Capabilities of a loaded model, measured as results on tasks of lm-evaluation-harness.

Source: Gao et al., "The Language Model Evaluation Harness", github.com/EleutherAI/lm-evaluation-harness; its Python API
(`simple_evaluate` with `HFLM`). Requires the extra `pip install 'evenhand[lm-eval]'`.
"""

import logging
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation.errors import InputError, require_extra, unknown_name
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.models.chat_templates import (
    guarded_template,
    merge_system_message,
    supports_system_message,
    template_arguments,
)

if TYPE_CHECKING:  # tasks are checked before anything heavy is imported
    from evenhand.evaluation.models.loading import DialogueModel

# Columns of the results.
TASK = "task"
METRIC = "metric"
DOCUMENT = "document"
VALUE = "value"
BATCH_SIZE = 8


def read_tasks(tasks: Sequence[str]) -> list[Any]:
    """Return the tasks as the harness expects them: names unchanged, and the contents of YAML files; none is run.

    InputError if lm-evaluation-harness is not installed, or a file cannot be read.
    """
    if tasks:
        require_extra("lm-eval", "lm_eval", field="capabilities")
    is_file = [task.endswith((".yaml", ".yml")) for task in tasks]
    return [read_yaml(Path(task), "capabilities") if read else task for task, read in zip(tasks, is_file, strict=True)]


def load_tasks(tasks: Sequence[str]) -> list[Any]:
    """Return `read_tasks`, after a check that the harness knows the names."""
    read = read_tasks(tasks)
    names = [task for task in read if isinstance(task, str)]
    if names:
        from lm_eval.tasks import TaskManager

        known = TaskManager().all_tasks
        for name in set(names).difference(known):
            raise unknown_name("capabilities", name, known)
    return read


def capability_rows(model: "DialogueModel", tasks: Sequence[object]) -> pd.DataFrame:
    """Return the value of each metric for each document of each task; higher values are better.

    The model's system prompt precedes a document. A chat model reads system prompt and document in its chat template,
    or both in the user message if the template has no system message (the harness would drop the prompt). Other models
    read plain text. The control tag is not used. Metrics without a number for each document (a corpus' BLEU, a
    perplexity), and metrics whose lower values are better, are skipped. `tasks` are the return value of `load_tasks`.

    The columns are task, metric (with the filter, if any), document (a hash) and value.
    """
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it logs a warning for every model that is already loaded
    is_chat = model.kind == "chat"
    template = {"chat_template_args": template_arguments(model.tokenizer)} if is_chat else {}
    harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=BATCH_SIZE, **template)
    if is_chat:
        has_system_message = supports_system_message(model.tokenizer)
        render_by_harness = harness.apply_chat_template

        def render(chat: list[dict[str, str]], *rest: object, **named: object) -> str:
            merged = chat if has_system_message else merge_system_message(chat)
            with guarded_template(model.tokenizer, merged):
                return render_by_harness(merged, *rest, **named)

        harness.apply_chat_template = render
    results = simple_evaluate(
        harness,
        tasks=list(tasks),
        system_instruction=model.system_prompt or None,
        apply_chat_template=is_chat,
        bootstrap_iters=0,
    )
    rows = [
        {
            TASK: task,
            METRIC: name if sample["filter"] == "none" else f"{name} ({sample['filter']})",
            DOCUMENT: sample["doc_hash"],
            VALUE: float(sample[name]),
        }
        for task, samples in results["samples"].items()
        for sample in samples
        for name in sample["metrics"]
        if results["higher_is_better"][task].get(name) and isinstance(sample[name], Real)
    ]
    for task in results["samples"].keys() - {row[TASK] for row in rows}:
        raise InputError("capabilities", f"{task} has no mean over documents that is better if higher; leave it out.")
    return pd.DataFrame(rows)
