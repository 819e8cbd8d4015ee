"""What a model can do beside answering: tasks of lm-evaluation-harness, asked of the model as it is loaded here.

Source: Gao et al., "The Language Model Evaluation Harness", github.com/EleutherAI/lm-evaluation-harness; its Python API
(`simple_evaluate` with `HFLM`). An extra: `pip install 'evenhand[lm-eval]'`.
"""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.runs.files import read_yaml

if TYPE_CHECKING:  # tasks are checked before anything heavy is imported
    from evenhand.evaluation.models.loading import DialogueModel

TASK, METRIC, DOCUMENT, VALUE = "task", "metric", "document", "value"
BATCH_SIZE = 8


def check_tasks(tasks: Sequence[str]) -> None:
    """Refuse tasks where there is no harness to ask them, and task files that are not there.

    Raises:
        InputError: as said.
    """
    if tasks and find_spec("lm_eval") is None:
        raise InputError(
            f"capabilities: {', '.join(tasks)}: lm-evaluation-harness is not installed; "
            "run pip install 'evenhand[lm-eval]', or leave this out."
        )
    for path in filter(is_task_file, tasks):
        read_yaml(Path(path), "capabilities")


def is_task_file(task: str) -> bool:
    """Say whether a task is a file of one's own and no name."""
    return task.endswith((".yaml", ".yml"))


def load_tasks(tasks: Sequence[str]) -> list[Any]:
    """Return the tasks as the harness takes them: a name, or what a file of one's own holds.

    Raises:
        InputError: a name is unknown, or a file cannot be read.
    """
    names = [task for task in tasks if not is_task_file(task)]
    if names:
        from lm_eval.tasks import TaskManager

        known = TaskManager().all_tasks
        for name in names:
            if name not in known:
                raise unknown_name("capabilities", name, known)
    return [read_yaml(Path(task), "capabilities") if is_task_file(task) else task for task in tasks]


def capability_rows(model: "DialogueModel", tasks: Sequence[Any]) -> pd.DataFrame:
    """Return what each document of each task is worth by each of its metrics of which more is better.

    Documents come after the model's system prompt, in a chat model's template as its prompts do (at the head of the
    user's message where the template takes no system message, which the harness would drop), else as plain text;
    the control tag is for prompts of people, and stays away. Metrics that are no number for each document (a corpus'
    BLEU, a perplexity) are passed over.

    Args:
        tasks: as `load_tasks` returns them.

    Returns:
        A row for each task, metric, filter and document: task, metric (with the filter, where there is one), document
        (a hash), value.

    Raises:
        InputError: a task has no such metric.
    """
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    from evenhand.evaluation.models.contexts import merge_system_message, supports_system_message, template_arguments

    level = logging.getLogger("lm_eval").level
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns of every model that is handed to it
    try:
        chats = model.kind == "chat"
        template = {"chat_template_args": template_arguments(model.tokenizer)} if chats else {}
        harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=BATCH_SIZE, **template)
        if chats and not supports_system_message(model.tokenizer):
            render = harness.apply_chat_template
            harness.apply_chat_template = lambda chat, *further, **told: render(
                merge_system_message(chat), *further, **told
            )
        found = simple_evaluate(
            harness,
            tasks=list(tasks),
            system_instruction=model.system_prompt or None,
            apply_chat_template=chats,
            bootstrap_iters=0,
        )
    finally:
        logging.getLogger("lm_eval").setLevel(level)
    rows = [
        {
            TASK: task,
            METRIC: _metric_name(name, sample["filter"]),
            DOCUMENT: sample["doc_hash"],
            VALUE: float(sample[name]),
        }
        for task, samples in found["samples"].items()
        for sample in samples
        for name in sample["metrics"]
        if found["higher_is_better"][task].get(name) and isinstance(sample[name], Real)
    ]
    for task in found["samples"]:
        if task not in {row[TASK] for row in rows}:
            raise InputError(f"capabilities: {task} has no metric that is a mean over documents, more being better.")
    return pd.DataFrame(rows)


def _metric_name(metric: str, filtered: str) -> str:
    return metric if filtered == "none" else f"{metric} ({filtered})"
