"""Facts of pages, written by hand, and the words of the pages about them, which the folder `golden` has.

$ python -m tests.evaluation.metrics.generation_bias.golden_pages     # writes them again
"""

from pathlib import Path

from evenhand.evaluation.data.language.mentions import MentionShares
from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.metrics.generation_bias.decision import decision, found_costs
from evenhand.evaluation.metrics.generation_bias.findings import Change, Level, Outcome, Who
from evenhand.evaluation.metrics.generation_bias.first_tables import comparison_table, measurement_table
from evenhand.evaluation.metrics.generation_bias.headline import headline_value, size_change, size_finding
from evenhand.evaluation.metrics.generation_bias.verdict import AcceptedChange
from evenhand.evaluation.metrics.generation_bias.words import caution_text, words
from tests.evaluation.metrics.generation_bias.conftest import POOLED, score
from tests.evaluation.metrics.generation_bias.golden_sentences import SENTENCES

FOLDER = Path(__file__).with_name("golden")
LANGUAGE = Outcome("other_language", "other_language", "", "share")
SYMPATHY = Outcome("style", "sympathy", "", "share")
REFUSAL = Outcome("refusal", "refusal", "decline the request", "share")
LENGTH = Outcome("length", "length", "", "ratio", unit="words", decimals=1)
TONE = Outcome("warmth_of_tone", "warmth_of_tone", "", "number", decimals=2)


def level(mean, average, hits=None, n=52, certainty="shown"):
    """Return the level of a person: n answers, hits of them or a mean, and a difference that is a little shrunk."""
    estimate = 0.9 * (mean - average)
    interval = (estimate - 0.05, estimate + 0.08)
    return Level(n, hits, mean, average, estimate, interval, certainty)


def person(name, outcome, form="person", language="English", **values):
    """Return a finding on a person, whose answers have an outcome."""
    subject = {"who": Who(name, form), "outcome": outcome, "language": language}
    return Finding("person", {**subject, "level": level(**values)})


def change(name, outcome, before, after, change=None, form="person"):
    """Return a finding on a person before and after; `change` is the certainty of the change, None if it has none."""
    subject = {"who": Who(name, form), "outcome": outcome, "language": None}
    of_change = change and Change(-0.2, (-0.3, -0.1), change)
    return Finding("person_before_after", {**subject, "before": before, "after": after, "change": of_change})


def style(overall="shown", largest=None, mixes=(), in_language=False, language=None):
    """Return a finding on styles; `overall` is the verdict on all people."""
    counts = {"overall": overall, "n_tested": 40, "n_shown": 0 if largest is None else 1}
    of_whom = {"largest": largest, "mixes": list(mixes), "in_language": in_language, "language": language}
    return Finding("style", {**counts, **of_whom})


def run_verdict(serious=(), of_style=None, outcomes=(), further=()):
    """Return the verdict on a run; `outcomes` are findings, `further` are names."""
    of_outcomes = {"outcomes": list(outcomes), "further": list(further)}
    values = {"serious": list(serious), "style": of_style or style(), **of_outcomes}
    return Finding("run_verdict", values)


def change_verdict(direction, n_singles=0, remains="shown", **reasons):
    """Return the verdict on a change of the whole difference."""
    values = {"direction": direction, "are_tested": True, "n_singles": n_singles, "remains": remains}
    unknown = {"unclear_after": None, "unclear_before": None, "no_percentage": None}
    answers = {"in_language": False, "language": None}
    return Finding("change_verdict", {**values, **unknown, **answers, **reasons})


SPANISH = person("Cuban-American", LANGUAGE, mean=0.29, average=0.04, hits=15)
SORRY = person("with dementia", SYMPATHY, mean=0.3, average=0.05)
LONG = person("doxen", LENGTH, form="made_up", mean=10.1, average=8.7)
SPREADS = [
    Finding("outcome_differs", {"largest": LONG, "spread": None}),
    Finding("outcome_differs", {"largest": None, "spread": score("fluency_spread", 0.31)}),
    Finding("outcome_differs", {"largest": None, "spread": score("refusal_spread", 0.04)}),
]
COSTS = found_costs(
    [
        score("relevance_kept", 0.953, (0.91, 0.99)),
        score("relevance_to_person_kept", 0.66, (0.45, 0.88)),
        score("mean_length_kept", 1.01, (1.0, 1.02)),
    ],
    max_cost=10,
)
WHOSE = {"n": 4, "n_of": 12, "people": [{"name": "deaf", "n": 3, "n_of": 4}, {"name": "old", "n": 1, "n_of": 4}]}
CHANGED = {
    "before": score("scgb_pooled_corrected", 0.00008, cluster="HATE"),
    "after": score("scgb_pooled_corrected", 0.00066, cluster="HATE"),
    "difference": score("scgb_pooled_corrected_difference", 0.00058, (0.00041, 0.00074), 0.0003, cluster="HATE"),
}
SHIFTED = {name: score("style_share", value, cluster="CARE") for name, value in (("before", 0.13), ("after", 0.028))}
SAVED = Finding("saved", {"n": 16, "requests": {}})
LARGE = Finding("decided_size", {"word": "large"})
RUN_CAUTIONS = [
    Finding(
        "stopped", {"asked": 32, "planned": 48, "saving": SAVED, "decision": Finding("decided_size", {"word": "large"})}
    ),
    Finding("looked_at", {"decision": None}),
    Finding("intervals_after_looks", {"of": "run"}),
    Finding("verdict_unclear", {"reason": Finding("unclear_test", {"p": 0.04})}),
    Finding("verdict_unclear", {"reason": Finding("unclear_interval", {"p": 0.2})}),
    Finding("verdict_unclear", {"reason": Finding("unclear_caution", {"text": "there is one template"})}),
    Finding("planted_model"),
    Finding("small_model"),
    Finding("unread", {"fault": Finding("reads_english", {"classifier": "goemotions", "share": 0.96})}),
    Finding("few_responses", {"n": 32}),
    Finding("one_sided", {"text": "each cell has two responses"}),
    Finding("these_prompts", {"text": "they are of these prompts only"}),
    Finding("repeated_rows", {"share": 0.104}),
    Finding("accepted_left_out", {"first": [{"name": "SYMPATHY", "unit": "ability", "signed": "A. Lead"}], "n": 3}),
    Finding("unfinished", {"share": 0.031}),
    Finding("no_label", {"n": 2, "n_of": 1200, "limit": 0.05}),
    Finding("too_long_for_classifier", {"share": 0.02}),
    Finding("infinite_values", {"name": "warmth_of_tone", "n": 3}),
    Finding("these_names", {"n": 36, "attributes": ["gender", "race"], "is_tested": True}),
    Finding("these_names", {"n": 8, "attributes": ["gender"], "is_tested": False}),
    Finding("no_chat_template", {"model_name": "org/base"}),
    Finding("cut_answers", {"shares": [0.75]}),
    Finding("missing_answers", {"what": "reason", "reason": "error 429", **WHOSE}),
    Finding("missing_answers", {"what": "filter", "reason": "", **WHOSE}),
    Finding("missing_answers", {"what": "no text", "reason": "", **WHOSE}),
    Finding("more_reasons", {"n_reasons": 7}),
    Finding("reasoned", {"n": 9, "n_of": 12, "n_unfinished": 1}),
    Finding("other_model", {"model_name": "small", "most": "large", **WHOSE}),
    Finding("other_text", {"name": "role", "label": "the name of a role", "is_removable": True, **WHOSE}),
    Finding("other_text", {"name": "sheet", "label": "a cell's formula", "is_removable": False, **WHOSE}),
    Finding("without_style", WHOSE),
    Finding("few_mentions", {"shares": MentionShares(0.002, 0.04)}),
    Finding("equal_answers", {"n": 6, "n_of": 6}),
    Finding("unanswered", WHOSE),
    Finding("several_people", {"names": ["old, young", "deaf and blind"]}),
    Finding("alike", {"names": ["Old", "old "]}),
    Finding("no_templates"),
]
CHANGE_CAUTIONS = [
    Finding("few_common_prompts", {"n": 24, "n_of": 32}),
    Finding("styles_of_all_answers"),
    Finding("clusters_rose", {"names": ["HATE", "CARE"]}),
    Finding("groups_rose", {"names": ["body_type"]}),
    Finding("style_rose", {"name": "HATE", **CHANGED}),
    Finding("offensive_rose", {"name": "offensive_share", **CHANGED}),
    Finding("offensive_rose", {"name": "offensive_share", "before": None, "after": None, "difference": None}),
    Finding("style_shifted", {"name": "CARE", "difference": None, **SHIFTED}),
    Finding("large_cost", {"label": "repeats the prompt", "change": 0.04, "is_relative": False}),
    Finding("large_cost", {"label": "different word pairs (distinct-2)", "change": -0.25, "is_relative": True}),
    Finding("task_worse", {"name": "piqa, acc", **CHANGED}),
    Finding("cut_answers", {"shares": [0.75, 0.8]}),
    Finding("stopped_early", {"which": "before", "asked": 32, "planned": 48}),
    Finding("a_run_was_looked_at"),
    Finding("intervals_after_looks", {"of": "changes"}),
    Finding("equal_answers", {"n": 6, "n_of": 6, "side": "after"}),
]
NEW = change("gay", REFUSAL, level(0.06, 0.01, 3, certainty="inconclusive"), level(0.5, 0.07, 26))
RISES = [
    Finding("outcome_rose", {"outcome": REFUSAL, "before": 0.02, "after": 0.09, "language": "English"}),
    Finding("outcome_apart", {"outcome": REFUSAL}),
]
LIMITS = {"max_size": 5, "max_cost": 10}
PAGES = {
    "run": Facts(
        headline=None,
        size=size_finding(score(POOLED, 0.0026, (0.001, 0.004)), is_shown=True, in_language=True, language="English"),
        verdict=run_verdict(
            [SPANISH], style(in_language=True, language="English"), SPREADS[:2], ["readability", "warmth_of_tone"]
        ),
        people=[
            SPANISH,
            person("body_type", REFUSAL, form="group", mean=0.1, average=0.05, hits=5),
            SORRY,
            LONG,
            person("My name is Ana.", TONE, form="text", mean=0.7, average=0.5),
        ],
        explanations=[
            Finding("limit_of_style", {"bound": 0.28}),
            SPREADS[2],
            Finding("run_advice", {"case": "language", "is_log": False}),
            Finding("meaning", {"case": "language", "is_log": False}),
            Finding("style_summary", {"n": 340, "n_shown": 3, "n_leads": 2, "n_tiny": 0, "mixes": ["tall"]}),
            Finding("style_summary_in_language", {"n_all": 9, "n_both": 2, "n_others": 1, "language": "English"}),
            Finding("changes_in_language", {"language": "English"}),
            Finding("certainty"),
            Finding("p_values", {"tests": [{"side": "", "p": 0.0025}]}),
            Finding("decoding", {"title": "sample, temperature 0.7"}),
            Finding("answer_count", {"n": 1248, "n_people": 24}),
            Finding("answer_count", {"n": 1, "n_people": 1}),
        ],
        cautions=RUN_CAUTIONS,
        left_out=[
            Finding("answers_left_out", {"n": 15, "n_of": 96, "reasons": {"too long": 12, "no answer": 3}}),
            Finding("repeats_left_out"),
        ],
    ),
    "comparison": Facts(
        headline=None,
        size=size_change(
            score(POOLED, 0.0026, (0.001, 0.004)),
            score(POOLED, 0.0007, (-0.0001, 0.002)),
            score(f"{POOLED}_reduction", 0.73, (0.5, 0.95)),
            is_shown=True,
        ),
        verdict=change_verdict("fell", n_singles=2, remains="not shown"),
        people=[
            change("gay", REFUSAL, level(0.5, 0.07, 26), level(0.06, 0.01, 3, certainty="inconclusive")),
            change("deaf", SYMPATHY, level(0.48, 0.09), level(0.3, 0.09), "shown"),
            change("tall", SYMPATHY, level(0.48, 0.09), level(0.3, 0.09), "inconclusive"),
            change("deaf", LENGTH, level(10.1, 8.7), level(8.8, 8.4, certainty="inconclusive")),
        ],
        explanations=[
            size_change(score(POOLED, 0.0001, (0, 0.001)), score(POOLED, 0.0018, (0.001, 0.003)), None, is_shown=True),
            Finding("limits_before_after", {"before": 0.28, "after": 0.15}),
            *(
                change_verdict(direction, before="not shown", in_language=True, language="English")
                for direction in ("nothing before", "fell", "unchanged")
            ),
            Finding(
                "accepted_changes",
                {
                    "changes": [AcceptedChange("ability, SYMPATHY", 0.31, 0.06, is_shown=True)],
                    "n_more": 2,
                },
            ),
            decision("fell", (0.0, 0.04), COSTS[3:], [], **LIMITS),
            decision("unchanged", (0.0, 0.07), COSTS[2:], [], **LIMITS),
            Finding("p_values", {"tests": [{"side": "before", "p": 0.0025}, {"side": "after", "p": 0.00001}]}),
            Finding("system_prompts", {"prompts": ["Be kind.", None]}),
            Finding("stated_decoding", {"arguments": {"temperature": 0.7}}),
        ],
        cautions=CHANGE_CAUTIONS,
        costs=COSTS,
        decision=decision("rose", (0.06, 0.07), COSTS[:2], [NEW], **LIMITS, overall_rises=RISES),
    ),
}


def page_text(facts: Facts) -> str:
    """Return the words of a page about these facts, a paragraph for each finding."""
    findings = [facts.verdict, *facts.people]
    if facts.decision:
        findings.insert(0, facts.decision)
    table = comparison_table(facts) if facts.decision else measurement_table(facts)
    rows = []
    for row in table.rows:
        rows.append(" | ".join([row.label, *(f"{cell.text} {cell.interval}".strip() for cell in row.cells)]))
    rows.append(table.note)
    findings += [*facts.explanations, *facts.left_out]
    top = f"{headline_value(facts.size)}  {words(facts.size)}"
    return "\n\n".join([top, *rows, *map(words, findings), *map(caution_text, facts.cautions)]) + "\n"


def texts() -> dict[str, str]:
    """Return the words of each page, and of each list of sentences, by the name of its file."""
    found = {name: page_text(facts) for name, facts in PAGES.items()}
    for name, findings in SENTENCES.items():
        found[name] = "\n\n".join(map(words, findings)) + "\n"
    return found


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
