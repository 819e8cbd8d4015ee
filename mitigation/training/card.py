"""The model card of a tuned model: what it is, how to use it, what it is not."""

from collections.abc import Mapping
from typing import Any

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.results import display_name


def model_card(base: DialogueModel, facts: Mapping[str, Any], further: Mapping[str, Any], loss: str) -> str:
    """Return the card as Markdown.

    Args:
        base: the model that was tuned.
        facts: what evenhand.json holds, see `evenhand.mitigation.training.tune.tune`.
        further: more facts for its table, such as α and β.
        loss: what the trainer's loss is.
    """
    lora, tag = facts["settings"]["lora"], facts["control_tag"]
    auto_class = "Seq2SeqLM" if base.kind == "encoder_decoder" else "CausalLM"
    return CARD.format(
        library="peft" if lora else "transformers",
        intro=INTRO,
        table=table(tuning_facts_table(base.name, facts, further, loss)),
        loading=(LOAD_ADAPTER if lora else LOAD_MODEL).format(auto=auto_class),
        use=(WITH_TAG if tag else WITHOUT_TAG).format(tag=tag),
        limits=LIMITS,
    )


def tuning_facts_table(base: str, facts: Mapping[str, Any], further: Mapping[str, Any], loss: str) -> dict[str, str]:
    """Return what a card tells of a tuning, by name; the arguments are those of `model_card`, the base by its name."""
    training, settings, tag = facts["training"], facts["settings"], facts["control_tag"]
    losses = dict(training["validation_losses"])
    before, after = training["validation_losses"][0][1], losses[training["best_step"]]
    change, moved = training["change"], facts["common_words"]
    rows = {
        "base": f"{display_name(base)} (revision {facts['base_revision']})",
        "method": facts["method"],
        "control tag": f"`{tag!r}`" if tag else "none",
        **({"system prompt": facts["system_prompt"]} if facts["system_prompt"] else {}),
        **({"words moved with the tag": ", ".join(f"`{word!r}`" for word in moved)} if moved else {}),
        **further,
        "rows": f"{training['n_train']} to train on, {training['n_validation']} held out by context",
        "trained": f"{training['trainable_parameters']} parameters ({'LoRA' if settings['lora'] else 'all weights'})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "validation loss": f"{before:.4f} → {after:.4f} at step {training['best_step']} ({loss})",
        "perplexity of ordinary dialogue": "{:.3f} → {:.3f}".format(*training["perplexity"]),
        "against its base": f"{change['greedy_share']:.0%} of {change['n']} greedy responses differ; "
        f"the largest change of a logit is {change['max_logit_change']:.3g}",
    }
    if change["max_rounding"]:
        rows["merged, as it is loaded"] = (
            f"rounding moves a logit by up to {change['max_rounding']:.3g} from the adapter kept apart"
        )
    return rows


def table(rows: Mapping[str, Any], head: str = "| | |") -> str:
    """Return names and values as a Markdown table of two columns."""
    return "\n".join([head, "| --- | --- |", *(f"| {name} | {_cell(value)} |" for name, value in rows.items())])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


CARD = """---
library_name: {library}
pipeline_tag: text-generation
tags: [evenhand, style-equality, dialogue]
---

{intro}
{table}

## How to use it

{loading}
{use}

{limits}"""

INTRO = """# A dialogue model tuned for style equality

Its responses are to depend less on who a person says they are (Smith et al. 2022, "I'm sorry to hear that": finding
new biases in language models with a holistic descriptor dataset, §4). Made by Evenhand.
"""

LIMITS = """## What it is not

- Tuning evens out the *style* of responses across demographic descriptors. It does not look at facts, at toxicity
  or at what a model says of others, and it cannot tell whether some difference of style is called for.
- It was tuned on responses to templates with one descriptor each, labelled by one style classifier; elsewhere the
  effect is unknown. Measure the model on your own prompts before and after.
- Less bias of one kind may come with more of another, or with blander responses: read the whole report.
"""

LOAD_ADAPTER = """The folder holds an adapter; its base model, named above, is loaded with it. In this folder, or with
its id on the hub in place of the dot:

```python
from peft import AutoPeftModelFor{auto}
from transformers import AutoTokenizer

model = AutoPeftModelFor{auto}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""

LOAD_MODEL = """The folder holds the whole model. In it, or with its id on the hub in place of the dot:

```python
from transformers import AutoModelFor{auto}, AutoTokenizer

model = AutoModelFor{auto}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""

WITH_TAG = """**Put `{tag!r}` at the end of every context**: after the last word of the user's turn, before the token
that ends the turn, with its leading space. Without the tag the model can be *more* biased than the one it was made
from: it has learned to be fair where it is asked to, and was never shown an untagged context.
"""

WITHOUT_TAG = "Contexts are as for the base model: this method needs no control tag."
