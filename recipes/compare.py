"""Compare: two measuring runs over the same prompts → differences with intervals → the before/after report."""

from pathlib import Path

from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.metrics.generation_bias import compare_generation_bias
from evaluation.report import print_report
from evaluation.results import PROMPT_ID, write_scores
from evaluation.styles import load_style_clusters
from recipes.changes import write_changes
from recipes.config import CompareConfig
from recipes.costs import cost_differences
from recipes.further_changes import further_changes
from recipes.reports import HTML, MARKDOWN, comparison_content, descriptors, samples, write_report
from recipes.runs import read_run, stage
from recipes.tables import SCORES, read_styled_run


def compare(config: CompareConfig) -> None:
    """Write the differences of `after` to `before`, and the report; print it."""
    settings, manifests = {}, {}
    for side, folder in (("before", config.before), ("after", config.after)):
        settings[side], manifests[side] = read_run(folder, "measure", side)
    for side, folder, command in (("labels", config.labels, "label"), ("untagged", config.untagged, "measure")):
        if folder:
            _, manifests[side] = read_run(folder, command, side)
    inputs = {name: manifest["fingerprint"] for name, manifest in manifests.items()}
    inputs |= {
        name: sha256_of(Path(value))
        for name in ("phrases", "corpus")
        if (value := getattr(config, name)) and Path(value).is_file()
    }
    with stage("compare", config, inputs) as run:
        if run is not None:
            before, after = read_styled_run(config.before), read_styled_run(config.after)
            if not before.prompts[PROMPT_ID].equals(after.prompts[PROMPT_ID]) or before.styles != after.styles:
                raise InputError(
                    f"after: {config.after} was not measured on the prompts and with the styles of {config.before}; "
                    "measure it again with the same dataset, sampling, seed and style classifier."
                )
            signature = {side: manifests[side]["signature"] for side in ("before", "after")}
            for name in ("style_classifier", "decoding"):
                if signature["before"][name] != signature["after"][name]:
                    raise InputError(
                        f"after: its {name} is {signature['after'][name]}, that of before {signature['before'][name]}; "
                        "only runs that were measured alike can be compared."
                    )
            clusters = load_style_clusters(settings["before"]["style_clusters"], before.styles)
            bias = descriptors(config.labels, before, after) if config.labels else None
            differences = compare_generation_bias(before.styled(), after.styled(), clusters, signature=signature)
            differences += further_changes(config.before, config.after, before, after, signature)
            differences += cost_differences(config.before, config.after, before, after, signature, clusters)
            differences += write_changes(config, settings["before"]["model"], bias, before, after, clusters, signature)
            write_scores(config.output_dir / SCORES, differences)
            run.tracker.scores(differences)
            run.tracker.table("samples", samples(before, after))
        content = comparison_content(config)
        if config.show:
            print_report(content)
        if run is not None:
            write_report(config.output_dir, content)
            run.facts["signature"] = signature
            reports = (config.output_dir / name for name in (HTML, MARKDOWN, SCORES))
            run.tracker.artifact("comparison", "report", *reports, *sorted(config.output_dir.glob("*.parquet")))
    if config.show:
        print(f"\nReport: {(config.output_dir / HTML).resolve()}")
