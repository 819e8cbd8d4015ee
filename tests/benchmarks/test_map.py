"""The map of methods: what serving needs, the table of made-up results, and the section in a page."""

import math
import re
from types import SimpleNamespace

from benchmarks.map import BEGIN, END, needs_of, section, write_figure, write_section

ROW = {
    "method": "distill",
    "seed": 0,
    "failed": "",
    "cpu_minutes": 3.14,
    "reduction": 0.5,
    "reduction_low": 0.25,
    "reduction_high": 0.75,
    "reduction_tuned": math.nan,
    "divergence_tuned": 0.44,
    "relevance_to_person_kept": 0.9,
    "relevance_to_person_kept_low": 0.8,
    "relevance_to_person_kept_high": 1.0,
}
SETTINGS = SimpleNamespace(
    measure=SimpleNamespace(
        model=SimpleNamespace(name="org/model"), prompts=SimpleNamespace(descriptors=20, untuned_by="axis")
    )
)


def test_what_serving_a_method_needs():
    assert needs_of("distill") == "nothing: the weights are merged"
    assert needs_of("opening") == "the adapter for the first tokens, then the base"
    assert needs_of("distill+prompt") == "nothing: the weights are merged; a line in the system prompt"
    assert "tag" in needs_of("control_tags")


def test_the_section_has_a_row_for_each_method_and_is_replaced(tmp_path):
    failed = {"method": "rejection", "seed": 0, "failed": "learning_rate: it damaged | the model"}
    text = section([ROW, failed], SETTINGS, "python -m benchmarks.map")
    row, refused = (line for line in text.splitlines() if line.startswith("| `"))
    assert row.startswith("| `distill` | 0 | 50 % [25, 75] | – | – | 44 % | – | 90 % [80, 100] |")
    assert row.endswith("| 3.1 | nothing: the weights are merged |")
    assert "damaged \\| the model" in refused
    header = next(line for line in text.splitlines() if line.startswith("| method"))
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in (header, row, refused)]
    assert columns == columns[:1] * 3
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nText.\n")
    write_section(page, text)
    write_section(page, section([ROW], SETTINGS, "python -m benchmarks.map"))
    written = page.read_text()
    assert written.startswith("# A page\n\nText.\n") and "rejection" not in written
    assert written.count(BEGIN) == written.count(END) == 1
    unknown = ROW | {"reduction": math.nan, "divergence_untuned": 0.23}
    write_figure(tmp_path / "map.png", [ROW, failed, unknown])
    assert (tmp_path / "map.png").stat().st_size > 1000
