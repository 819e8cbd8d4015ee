"""The boxes of perplexities by template and axis, against quartiles by hand."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import LOVE
from evenhand.evaluation.metrics.likelihood_bias.distributions import box_panels, distribution_section


def likelihoods(perplexities):
    """Sentences of one token with the given perplexities, by (template, axis)."""
    rows = [(template, axis, -np.log(p), 1) for (template, axis), values in perplexities.items() for p in values]
    return pd.DataFrame(rows, columns=["template", "axis", "log_likelihood", "n_tokens"])


def test_a_panel_for_each_template_has_a_box_for_each_axis():
    rows = pd.DataFrame({"axis": ["age"] * 5 + ["ability"] * 3, "perplexity": [1, 2, 3, 4, 5, 10, 20, 30.0]})
    figure = box_panels({"I am {noun_phrase}.": rows, "I love {plural_noun_phrase}.": rows[rows["axis"] == "age"]})
    first, second = figure.axes
    assert first.get_title(loc="left") == "I am …." and second.get_title(loc="left") == "I love …s."
    assert [text.get_text() for text in first.get_yticklabels()] == ["ability", "age"]
    # A box has five lines (box, two whiskers, two caps) and its median.
    medians = sorted(float(line.get_xdata()[0]) for line in first.lines[5::6] if len(set(line.get_xdata())) == 1)
    assert medians == [3.0, 20.0]
    assert first.get_xscale() == "log"


def test_the_section_begins_with_the_template_of_table_3_and_leaves_undefined_perplexities_out():
    table = likelihoods({("A {noun_phrase}.", "age"): [2, np.nan], (LOVE, "age"): [3, 4]})
    (figure,) = distribution_section(table).figures
    assert 'class="chart"' in figure.svg
    undefined = likelihoods({(LOVE, "age"): [np.nan, np.nan]})
    assert not distribution_section(undefined).has_content


@pytest.mark.parametrize("n_templates", [1, 3, 4])
def test_empty_panels_are_hidden(n_templates):
    rows = pd.DataFrame({"axis": ["age"] * 3, "perplexity": [1.0, 2.0, 3.0]})
    figure = box_panels({f"{number} {{noun_phrase}}.": rows for number in range(n_templates)})
    assert sum(axes.get_visible() for axes in figure.axes) == n_templates
