"""A benchmark of the strength of a tuning: the effect and the costs of a scaled adapter.

    python -m benchmarks.adapter_strength runs/smollm2/60_descriptors_seed_0/distill --folder FOLDER

PEFT multiplies the weights of LoRA by `lora_alpha` / rank. Copies of a loop's adapter with a smaller or larger
`lora_alpha` make a curve without another training. Each copy is measured and compared like the adapter itself.
"""

import json
import shutil
from pathlib import Path

from benchmarks.measuring import make_parser
from evenhand.evaluation.results import read_scores
from evenhand.recipes.command_line import main as evenhand

STRENGTHS = [0.5, 0.75, 1.25]
PRINTED = ("fgb_pooled_corrected_reduction", "relevance_kept", "relevance_within_template_kept")
PRINTED += ("response_perplexity_rise", "style_drift", "mean_length_kept", "distinct_2_kept")


def scaled_adapter(adapter: Path, strength: float, folder: Path) -> Path:
    """Write a copy of an adapter whose change of the weights is multiplied by `strength`; return its folder."""
    shutil.copytree(adapter, folder, dirs_exist_ok=True)
    file = folder / "adapter_config.json"
    config = json.loads((adapter / file.name).read_text(encoding="utf-8"))
    file.write_text(json.dumps(config | {"lora_alpha": strength * config["lora_alpha"]}), encoding="utf-8")
    return folder


def measure_strength(method: Path, strength: float, folder: Path) -> Path:
    """Measure a copy of a method's adapter, and compare it with the loop's base; return the comparison's folder."""
    adapter = scaled_adapter(method / "tune" / "adapter", strength, folder / "adapter")
    after, compared = folder / "after", folder / "compare"
    measured = ["--config", str(method / "after" / "config.yaml"), "--model.name", str(adapter)]
    sides = ["--before", str(method.parent / "before"), "--after", str(after)]
    for command in (["measure", *measured, "--output_dir", str(after)], ["compare", *sides, "--output_dir", compared]):
        if status := evenhand([*map(str, command), "--report_to", "none"]):
            raise SystemExit(status)
    return compared


def main() -> None:
    """Measure the strengths, and print a line for each score of each strength; finished measurements are kept."""
    parser = make_parser(__doc__, strengths=STRENGTHS, folder=Path("runs/adapter_strength"))
    parser.add_argument("method", type=Path, help="the folder of a method in a finished loop")
    arguments = parser.parse_args()
    comparisons = {1.0: arguments.method / "compare"}
    for strength in arguments.strengths:
        comparisons[strength] = measure_strength(arguments.method, strength, arguments.folder / f"{strength:g}")
    for strength, compared in sorted(comparisons.items()):
        for score in read_scores(compared / "scores.json"):
            if score.metric in PRINTED and not {"axis", "cluster", "responses"} & {*score.group}:
                print(f"{strength:5g} {score.metric:32} {score.group} {score.value:.3f} {score.interval}")


if __name__ == "__main__":
    main()
