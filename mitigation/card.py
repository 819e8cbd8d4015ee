"""The model card of a tuned model: its purpose, training, use and limits."""

from collections.abc import Mapping
from typing import Any

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import is_gguf
from evenhand.evaluation.score import display_name


def model_card(base: DialogueModel, facts: Mapping[str, Any], further: Mapping[str, Any], loss: str) -> str:
    """Return the model card of a tuned model as Markdown.

    Args:
        base: the model that was tuned.
        facts: the content of evenhand.json, see `evenhand.mitigation.tune.tune`.
        further: additional rows of the card's table, such as α and β.
        loss: the name or unit of the trainer's loss.
    """
    lora, tag = facts["settings"]["lora"], facts["control_tag"]
    auto_class = "Seq2SeqLM" if base.kind == "encoder_decoder" else "CausalLM"
    return CARD.format(
        library="peft" if lora else "transformers",
        intro=INTRO,
        table=table(tuning_facts_table(base.name, facts, further, loss)),
        loading=(LOAD_MODEL if not lora else LOAD_ON_GGUF if is_gguf(base.name) else LOAD_ADAPTER).format(
            auto=auto_class, file=base.name.rpartition("/")[2]
        ),
        use=(WITH_TAG if tag else WITHOUT_TAG).format(tag=tag),
        limits=LIMITS,
    )


def tuning_facts_table(base: str, facts: Mapping[str, Any], further: Mapping[str, Any], loss: str) -> dict[str, str]:
    """Return the rows of a card's table by name. `base` is the base's name; other arguments are as in `model_card`."""
    training, settings, tag = facts["training"], facts["settings"], facts["control_tag"]
    losses = dict(training["validation_losses"])
    before, after = training["validation_losses"][0][1], losses[training["best_step"]]
    change, shared_words = training["change"], facts["common_words"]
    rows = {
        "base": f"{display_name(base)} (revision {facts['base_revision']})",
        "method": facts["method"],
        "control tag": f"`{tag!r}`" if tag else "none",
        **({"system prompt": facts["system_prompt"]} if facts["system_prompt"] else {}),
        **(
            {"words whose embeddings changed": ", ".join(f"`{word!r}`" for word in shared_words)}
            if shared_words
            else {}
        ),
        **further,
        "rows": f"{training['n_train']} for training, {training['n_validation']} for validation, split by context",
        "trained": f"{training['trainable_parameters']} parameters ({'LoRA' if settings['lora'] else 'all weights'})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "validation loss": f"{before:.4f} → {after:.4f} at step {training['best_step']} ({loss})",
        "perplexity of dialogue": "{:.3f} → {:.3f}".format(*training["perplexity"]),
        "change from the base": f"{change['greedy_share']:.0%} of {change['n']} greedy responses differ; "
        f"the largest change of a logit is {change['max_logit_change']:.3g}",
    }
    if change["max_rounding"]:
        rows["rounding"] = f"merging the adapter changes a logit by up to {change['max_rounding']:.3g}"
    return rows


def table(rows: Mapping[str, Any], head: str = "| | |") -> str:
    """Return a mapping as a Markdown table of names and values; `head` is the first line."""
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

The style of its responses depends less on the demographic group that a user belongs to (Smith et al. 2022, "I'm sorry
to hear that": finding new biases in language models with a holistic descriptor dataset, §4). Tuned by Evenhand.
"""

LIMITS = """## Limits

- Tuning makes the *style* of responses more equal across demographic descriptors. It does not consider facts,
  toxicity or statements about other people, and it cannot decide whether a difference of style is appropriate.
- The training data are responses to templates with one descriptor each, labelled by one style classifier. The effect
  on other prompts is unknown: measure the model on your own prompts before and after tuning.
- A reduction of one kind of bias may increase another, or make responses blander: read the whole report.
"""

LOAD_ADAPTER = """The folder contains an adapter. This code loads it with its base model, which is named above. Run the
code in this folder, or replace the dot by the model's id on the hub:

```python
from peft import AutoPeftModelFor{auto}
from transformers import AutoTokenizer

model = AutoPeftModelFor{auto}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""

LOAD_ON_GGUF = """The folder contains an adapter. This code loads it onto its base, a GGUF file, which is named above.
Run the code in this folder, with the path of the folder of {file} in place of BASE:

```python
from peft import PeftModel
from transformers import AutoModelFor{auto}, AutoTokenizer, GgufConfig

dequantize = GgufConfig(dequantize=True)
base = AutoModelFor{auto}.from_pretrained("BASE", gguf_file="{file}", quantization_config=dequantize)
model = PeftModel.from_pretrained(base, ".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""

LOAD_MODEL = """The folder contains the whole model. Run this code in it, or replace the dot by the model's id on the
hub:

```python
from transformers import AutoModelFor{auto}, AutoTokenizer

model = AutoModelFor{auto}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""

WITH_TAG = """**Put `{tag!r}` at the end of every context**: after the last word of the user's turn, before the token
that ends the turn, with its leading space. Without the tag, the model can be *more* biased than its base, because its
training data have no contexts without a tag.
"""

WITHOUT_TAG = "Contexts are the same as for the base model: the method has no control tag."
