"""Findings whose sentences stand in sections, in `check`, in the log and in the list of differences from the paper.

The folder `golden` has their words, a file for each list; `golden_pages` writes them.
"""

from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE, Finding
from evenhand.evaluation.metrics.generation_bias.decision import found_costs
from evenhand.evaluation.metrics.generation_bias.headline import Size
from tests.evaluation.metrics.generation_bias.conftest import POOLED, score

COSTS = [
    cost
    for cost in found_costs(
        [
            score("relevance_kept", 0.953, (0.91, 0.99)),
            score("relevance_to_person_kept", 0.66, (0.45, 0.88)),
            score("response_perplexity_rise", 0.12, (0.02, 0.22)),
        ],
        max_cost=10,
    )
    if cost.score
]
MEDIUM = Size(0.036, None, "medium", "medium", "")
SECTIONS = [
    *(Finding(kind) for kind in ("decide_whom", "decide_wrong", "decide_useful")),
    Finding("step_read", {"both": False}),
    Finding("step_read", {"both": True}),
    *(
        Finding(kind)
        for kind in (
            "step_loop",
            "step_plan",
            "step_costs",
            "step_score_all",
            "step_other",
            "step_service",
            "step_audit",
            "step_check_log",
        )
    ),
    Finding("step_fall", {"name": "Cuban-American", "n": 141, "n_now": 52, "minutes": 7.0}),
    Finding("step_check", {"after_audit": False}),
    Finding("step_check", {"after_audit": True}),
    *(Finding(f"word_{word}") for word in ("descriptor", "template", "group", "style")),
    *(Finding(kind) for kind in ("intervals", "intervals_of_parts")),
    Finding("source", {"text": "The answers are of a file."}),
    Finding("more_answers", {"people": [{"person": "deaf", "n": 8}, {"person": "old", "n": 6}], "n_of_others": 2}),
    *(Finding(f"about_{what}") for what in ("fgb", "detectable_fgb", "reductions")),
    Finding("accepted"),
    Finding("about_map", {"has_groups": True, "has_dots": True, "larger": [], "n_larger": 0}),
    Finding(
        "about_map",
        {
            "has_groups": False,
            "has_dots": False,
            "larger": [
                {"unit": "deaf", "style": "neutral", "difference": 0.16},
                {"unit": "ability (group)", "style": "joy", "difference": -0.04},
            ],
            "n_larger": 3,
        },
    ),
    Finding("about_effects", {"n_more": 0}),
    Finding("about_effects", {"n_more": 1200}),
    Finding("tables_of_all_answers"),
    Finding("links_of_effects", {"has_others": False}),
    Finding("links_of_effects", {"has_others": True}),
    Finding("detectable", {"median": 0.2, "worst": 0.44, "in_use": 0.05, "is_change": False}),
    Finding("detectable", {"median": 0.2, "worst": 1.1, "in_use": 0.05, "is_change": True}),
    Finding("style_changes", {"n": 340, "n_before": 0, "became": {}, "n_new": 2, "n_changed": 1}),
    Finding(
        "style_changes", {"n": 340, "n_before": 3, "became": {"kept": 2, "removed": 1}, "n_new": 0, "n_changed": 1}
    ),
    Finding("about_changes"),
    Finding("attributes", {"n_shown": 2, "n": 1400}),
    *(Finding(kind) for kind in ("about_attributes", "all_attributes")),
    Finding("about_rates", {"n_more": 0}),
    Finding("about_rates", {"n_more": 40}),
    *(Finding(f"about_{what}") for what in ("decision_rule", "decision_judge", "bounds", "typical")),
    Finding("no_outcome_shown", {"is_tested": True}),
    Finding("no_outcome_shown", {"is_tested": False}),
    *(Finding(f"about_{what}") for what in ("even_answers", "word_pairs")),
    Finding("about_likelihoods", {"model": "measured", "scored": None}),
    Finding("about_likelihoods", {"model": "base", "scored": {"responses": 1000, "of": 24000}}),
    Finding("about_phrases", {"others": "other descriptors"}),
    Finding("about_repeats", {"n_words": 6}),
    Finding("largest_rises", {"n": 40, "table": "parroting"}),
    Finding("variances_fell", {"n_less": 20, "n": 28}),
    Finding("about_variances", {"omitted_below": None}),
    Finding("about_variances", {"omitted_below": 0.0001}),
    Finding("about_corpus"),
    Finding("nobody"),
    Finding("shown_attributes", {"names": ["age", "gender × age"], "of_style": True, "of_others": False}),
    Finding("nobody_before_after"),
    Finding("no_change_verdict", {"side": "before", "reason": None}),
    Finding("no_change_verdict", {"side": "after", "reason": "few answers"}),
    Finding("costs_perhaps_too_large", {"costs": COSTS[:2], "max_cost": 10}),
    Finding("costs_perhaps_too_large", {"costs": COSTS[:3], "max_cost": 10}),
    Finding("costs_too_large", {"costs": COSTS[1:2], "max_cost": 2.5}),
]
SMALL = {"pooled_fgb": 0.0026, "moved": 0.036}
LARGE = {"pooled_fgb": 0.0162, "moved": 0.09}
REFUSED = score("refusal_mean_difference", 0.04, (0.02, 0.06))
DESIGN = Finding("deciding_design", {"n": 2016, "n_now": 160, "lever": "responses", "size": 63, "size_now": 5.0})
PEOPLE = Finding("deciding_design", {"n": 2016, "n_now": 160, "lever": "descriptors", "size": 630, "size_now": 50})
GROWN = Finding("grown_effect", {"unit": "deaf <b>", "style": "sympathy", "before": 0.25, "after": 0.4375, "p": 0.01})
FEW = Finding("hardly_common", {"n": 19, "n_of": 1990})
UNDEFINED = {"pooled_fgb": float("nan"), "moved": float("nan")}
CHECK = [
    Finding("pooled_fgb_limit", {"thousandths": 2.5}),
    Finding(
        "pooled_fgb",
        {"size": Size(0.036, None, "medium", "medium", ""), "score": score(POOLED, 0.0026, (0.001, 0.004))},
    ),
    Finding("pooled_fgb_allowed", {"moved": 0.035}),
    Finding("rise_limit", {"limit": 0.1}),
    Finding("rise", {"before": SMALL, "after": LARGE, "rise": {"value": 5.23, "interval": (1.2, 9.3)}}),
    Finding(
        "rise",
        {
            "before": SMALL,
            "after": LARGE,
            "rise": None,
            "excess": {"factor": 1.1, "value": 0.0133, "interval": (-0.001, 0.03)},
            "reason": "there is nothing to divide by",
        },
    ),
    Finding("rise", {"before": UNDEFINED, "after": LARGE, "rise": None, "reason": "there is one template"}),
    Finding("pooled_fgb_after", {"before": UNDEFINED, "after": LARGE, "interval": (0.0153, 0.0174)}),
    Finding("no_bias_before", {"thousandths": 5.0, "moved": 0.05}),
    Finding("rise_compared", {"n": 1200}),
    Finding("limits_in_language", {"n": 1200, "n_of": 1560}),
    Finding("limit_of_all_answers"),
    Finding("rise_allowed", {"limit": 0.1, "before": 0.036, "allowed": 0.038}),
    Finding("rise_chosen", {"limit": 0.5, "smallest": 0.1}),
    Finding("no_rise_showable", {"smallest": 0.1, "largest": 1.0, "has_value": True}),
    Finding("answers_limit"),
    Finding("people_without_answers", {"names": ["deaf", "old"], "n": 2}),
    Finding("people_without_answers", {"names": ["deaf"], "n": 3}),
    Finding("effects_limit"),
    Finding("grown", {"n": 0, "n_of": 1400, "most": None}),
    Finding("grown", {"n": 2, "n_of": 1400, "most": GROWN}),
    Finding("nobody_compared"),
    Finding("effects_compared"),
    Finding("effects_allowed", {"negligible": 0.5}),
    Finding("detectable_growth", {"median": 0.19, "worst": 0.4}),
    Finding("detectable_growth", {"median": 0.83, "worst": 3.1}),
    Finding("detectable_growth", {"median": 1.2, "worst": 3.1}),
    GROWN,
    Finding("outcomes_limit"),
    Finding("outcomes_compared"),
    Finding("outcomes_allowed", {"negligible": 0.5}),
    Finding("grown_outcome", {"change": REFUSED, "p": 0.0004}),
    Finding("newly_shown", {"people": [{"unit": "deaf", "outcome": "refusal"}]}),
    Finding("newly_shown", {"people": [{"unit": unit, "outcome": "other_language"} for unit in ("a", "b", "c", "d")]}),
    Finding("people_of_one_run", {"names": ["deaf", "old"], "n": 3}),
    Finding("spread_limit", {"score": score("refusal_spread", 0.04, (0.02, 0.06)), "limit": 3.0}),
    Finding("measured_score", {"score": score("refusal_spread", 0.04, (0.02, 0.06))}),
    Finding("difference_limit", {"limit": 20.0}),
    Finding("difference_bounds", {"low": 0.0, "high": 0.28}),
    Finding("difference_bounds", {"low": 0.0002, "high": 0.28}),
    Finding("difference_bounds", {"low": 0.05, "high": 0.28}),
    Finding("effect_beyond", {"unit": "body_type: (none)", "style": "SYMPATHY", "effect": 0.368, "at_least": 0.196}),
    Finding("no_difference_bounds", {"reason": None}),
    Finding("no_difference_bounds", {"reason": "nothing varies"}),
    Finding("rate_difference_limit", {"outcome": "refusal", "limit": 5.0}),
    Finding("rate_difference", {"low": 0.02, "high": 0.09}),
    Finding("rate_difference_from", {"low": 0.2}),
    Finding("no_rate_bounds"),
    Finding("rate_ratio_limit", {"outcome": "refusal", "limit": 0.8}),
    Finding("rate_ratio", {"low": 0.2, "high": 0.95}),
    Finding("to_decide", {"plan": DESIGN}),
    Finding("to_decide", {"plan": Finding("no_design_decides")}),
    Finding("to_decide", {"plan": Finding("no_pilot", {"reason": "nothing can be planned"})}),
    Finding("to_show_smallest", {"limit": 0.1, "plan": PEOPLE}),
    Finding("to_decide_rise"),
    Finding("to_decide_difference", {"n": 8000, "n_now": 2000, "met": 8}),
    Finding("to_decide_difference", {"n": None, "n_now": 2000, "met": 8}),
    Finding("to_decide_spread", {"score": score("refusal_spread", 0.04, (0.02, 0.06))}),
    Finding("to_decide_alone"),
    *(Finding("to_decide_otherwise", {"what": what}) for what in ("answers", "people", "templates")),
    Finding("measured_on_few", {"few": FEW, "measured": Finding("grown", {"n": 0, "n_of": 252, "most": None})}),
    Finding("stopped_early", {"which": "baseline", "asked": 32, "planned": 48}),
    Finding("stopped_early", {"which": "run", "asked": 32, "planned": 48}),
    Finding("intervals_after_looks", {"of": "check"}),
    Finding("rule_of_limits"),
    *(Finding("after_check", {"status": status, "passes": False}) for status in (HOLDS, INCONCLUSIVE, BROKEN)),
    Finding("after_check", {"status": INCONCLUSIVE, "passes": True}),
]
DECIDED = Finding("decided_difference", {"is_above": True, "limit": 5.0})
SAVED = Finding("saved", {"n": 800, "requests": {"some-model": 800, "some-judge": 790}})
HOSTILE = {"prompt": "Hi!", "response": "\x1b[31mHo"}
BOUNDS = (
    None,
    Finding("bounds_of_difference", {"low": 0, "high": 0.3}),
    Finding("bounds_of_rise", {"low": -0.002, "high": 0.001, "max_rise": 20.0}),
    Finding("bounds_of_size", {"low": 0.02, "high": 0.05}),
)
LOG = [
    Finding("progress", {"n": 1200, "n_other_language": 3, "n_refused": 0, "example": None}),
    Finding("progress", {"n": 12, "n_other_language": 0, "n_refused": 1, "example": HOSTILE}),
    *(Finding("look", {"asked": 400, "planned": 1200, "bounds": bounds}) for bounds in BOUNDS),
    Finding("end_of_looks", {"decision": DECIDED, "saving": SAVED}),
    Finding("end_of_looks", {"decision": Finding("decided_rise", {"is_above": False, "limit": 20.0}), "saving": None}),
    Finding("end_of_looks", {"decision": Finding("decided_limit", {"is_above": True, "limit": 4.0}), "saving": None}),
    Finding("prompts_not_asked", {"asked": 32, "planned": 48}),
]
PAPER = [
    Finding("paper_model", {"model_name": "org/model"}),
    Finding("paper_classifier", {"classifier": "goemotions"}),
    Finding("paper_clusters"),
    Finding("paper_dataset", {"dataset": "v1.0"}),
    Finding("paper_descriptors", {"n": 20}),
    Finding("paper_responses", {"n": 2, "n_paper": 16}),
    Finding("paper_personas", {"personas": "paper", "is_form": True}),
    Finding("paper_personas", {"personas": "none", "is_form": False}),
    Finding("paper_variations"),
    Finding("paper_split", {"split": "measure"}),
    Finding("paper_beams", {"n": None, "paper": {10: "DialoGPT", 3: "BlenderBot 2.0"}}),
    Finding("paper_min_tokens", {"n": None, "n_paper": 20}),
    Finding("paper_ngrams", {"n_paper": 3}),
    Finding("paper_precision", {"precision": "bfloat16"}),
    Finding("paper_max_tokens", {"n": 80}),
    Finding("paper_corpus_words"),
    Finding("paper_corpus_size", {"n": 1000}),
    Finding("paper_corpus_size", {"n": None}),
    Finding("paper_corpus_order"),
    Finding("paper_mentions"),
    Finding("paper_quotes"),
]
SENTENCES = {"sections": SECTIONS, "check": CHECK, "log": LOG, "paper": PAPER}
