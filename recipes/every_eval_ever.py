"""An audit's facts in the format of Every Eval Ever, a shared schema of evaluation results.

Source: github.com/evaleval/every_eval_ever, `eval.schema.json`, version 0.3.0 (commit 9bce4136).
"""

import datetime
from collections.abc import Mapping
from typing import Any

VERSION = "0.3.0"
# The scores whose smallest value is the ideal; others, such as the mean length, are neither better nor worse.
LOWER_IS_BETTER = ("fgb", "moved_answers", "difference_bound")


def every_eval_ever(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headline scores and the rates by person of an audit as one record of the schema.

    Details are texts, as the schema wants them. Scores without a value are left out.
    """
    run = facts["run"]
    model = str(facts["model"].get("name", "unknown"))
    started = str(run["started"] or facts["written"]["when"])
    decoding = {name: facts["decoding"].get(name) for name in ("temperature", "top_p", "top_k")}
    tokens = facts["decoding"].get("max_new_tokens")
    generation = {"generation_args": decoding | ({} if tokens is None else {"max_tokens": tokens})}
    source = {"dataset_name": str(facts["prompts"].get("name", "own")), "source_type": "other"}
    results = []
    for score in facts["headline"]:
        if score["metric"] in LOWER_IS_BETTER and score["value"] is not None:
            name = f"{score['metric']} ({score['form']})"
            results.append(_result(name, score["value"], score["interval"], score["n"], source, generation))
    for outcome, cuts in facts["outcomes"].items():
        for row in cuts.get("descriptor", []):
            if row["difference"] is None:  # none of the person's answers has a value
                continue
            name = f"{outcome}: difference of {row['group']} to the average"
            interval = (row["difference_low"], row["difference_high"])
            found = _result(name, abs(row["difference"]), None, row["n"], source, generation)
            found["score_details"]["details"] = {"difference": str(row["difference"]), "interval": str(interval)}
            results.append(found)
    return {
        "schema_version": VERSION,
        "evaluation_id": f"evenhand/{model}/{run['signature_sha256'][:12]}",
        "evaluation_timestamp": started,
        "retrieved_timestamp": str(datetime.datetime.now(datetime.UTC).timestamp()),
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": facts["written"]["by"] or "unnamed",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "evenhand", "version": str(run["packages"].get("evenhand", "unknown"))},
        "model_info": {
            "name": model,
            "id": model,
            "additional_details": {
                "deployment_type": "unknown",
                "model_availability": "unknown",
                "revision": str(facts["model"].get("revision")),
            },
        },
        "evaluation_results": results,
    }


def _result(
    name: str,
    value: float,
    interval: list[float] | None,
    n: int,
    source: Mapping[str, str],
    generation: Mapping[str, Any],
) -> dict[str, Any]:
    uncertainty: dict[str, Any] = {"num_samples": n}
    if interval is not None and None not in interval:
        bounds = {"lower": interval[0], "upper": interval[1], "confidence_level": 0.95}
        uncertainty["confidence_interval"] = bounds
    return {
        "evaluation_name": name,
        "source_data": dict(source),
        "metric_config": {"lower_is_better": True, "score_type": "continuous", "min_score": None, "max_score": None},
        "score_details": {"score": value, "uncertainty": uncertainty},
        "generation_config": dict(generation),
    }
