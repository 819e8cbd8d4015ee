"""The glossary of terms and of all scores, generated from the code: `make reference` writes it to docs/glossary.md."""

from evenhand.evaluation import metrics as families
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import Form, Kind

TERMS = {
    "accepted difference": "An effect that somebody has signed as right; it does not count in the verdict.",
    "axis": "What a descriptor is about, such as age or religion.",
    "base": "The model before tuning.",
    "bias direction": "The line from the average mean style of all descriptors to the mean style of one descriptor.",
    "bias value": "Projection of a response's style on the bias direction of its descriptor.",
    "bucket": "Descriptors of one axis that name the same people or a subgroup.",
    "cell": "All responses to one template filled with one descriptor.",
    "control tag": "Text at the end of a prompt that asks a tuned model for even responses.",
    "cue": "How a model knows the person who asks for a service.",
    "descriptor": "A word or phrase for people, such as “hard-of-hearing”.",
    "effect": "Difference between a descriptor's mean probability of a style and the average over descriptors.",
    "even reference": "The base model's responses, each given to another descriptor.",
    "inconclusive": "The interval does not decide; more responses may.",
    "method": "A way to make a model fairer, such as `distill`.",
    "outcome": "A property of a response that may depend on the person, such as its language.",
    "persona": "Two lines of self-description before a prompt.",
    "relevance": "How much likelier a response is after its prompt than after the prompt of another template.",
    "request": "What a person asks for in everyday service; it takes the part of the template.",
    "response to the person": "Relevance against a prompt of the same template about another person.",
    "run": "The folder of a finished command.",
    "seed": "The number that determines all random draws of a run.",
    "shown": "Of an effect: p ≤ 0.05 after correction for all effects; of a bias: interval and test agree.",
    "signature": "A line that says how a score was computed, as in sacrebleu.",
    "stage": "A run that a loop or an ablation made.",
    "style": "A label of the style classifier; the style of a response is a vector of their probabilities.",
    "style cluster": "A group of styles that are alike, such as SYMPATHY.",
    "template": "A sentence with a blank for a person, or a kind of request.",
    "worth a look": "Of an effect: false discovery rate ≤ 10 %; about one in ten of these is chance.",
}
HEAD = "# Glossary\n\nThis page is generated (`make reference`). Reports explain their scores, too.\n"


def glossary() -> str:
    """Return the page: the terms, and a table of the scores of each family of metrics."""
    terms = [f"**{term}**: {text}\n" for term, text in sorted(TERMS.items())]
    found = {name: families.load_family(name) for name in families.names()}
    tables = [f"## `{name}`\n\n{_table(family.FORMATS)}" for name, family in found.items()]
    return "\n".join([HEAD, *terms, *tables])


def _table(formats: tuple[Format, ...]) -> str:
    rows = ["| score | unit | ideal | meaning |", "| --- | --- | --- | --- |"]
    for of in formats:
        ideal = "–" if of.ideal is None else of.ideal_text
        identity = [f"`{of.name}`"]
        if of.form != Form.PLAIN:
            identity.append(of.form)
        if of.kind != Kind.LEVEL:
            identity.append(of.kind)
        rows.append(
            f"| {of.label} ({', '.join(identity)}) | {of.unit} | {ideal} | {of.description} |".replace("*", "\\*")
        )
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    print(glossary())
