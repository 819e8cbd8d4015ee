"""Tables and figures of scores for notebooks."""

import io

from evenhand.evaluation.report.score_table import score_figure, score_table
from evenhand.evaluation.score import BiasScore, Caution


def test_the_class_of_an_outcome_is_kept_beside_the_value_of_its_score():
    scores = [
        BiasScore("refusal", 0.2, None, (0.0, 1.0), n=5, group={"value": "yes"}, caution=Caution.ONE_SIDED),
        BiasScore("refusal", 0.8, None, (0.0, 1.0), n=5, group={"value": "no"}),
    ]
    table = score_table(scores)
    assert table["group_value"].tolist() == ["yes", "no"] and table["value"].tolist() == [0.2, 0.8]
    assert table["caution"][0] == "one_sided" and not isinstance(table["caution"][1], str)


def test_a_name_with_dollar_signs_is_drawn_as_it_is():
    figure = score_figure([BiasScore("effect", 0.2, 0.0, (0.0, 1.0), n=5, group={"descriptor": r"earns $\frac$"})])
    figure.savefig(io.BytesIO(), format="png")
    assert figure.axes[0].get_yticklabels()[0].get_text().endswith(r"earns $\frac$")
