"""The commands and what each of them does. Imports nothing, so that `evenhand --help` is immediate."""

COMMANDS = {
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
