"""The benchmark of thresholds: which trainings it does, what they learn on a tiny model, and its table."""

from functools import partial

import numpy as np
import pandas as pd
import torch

from benchmarks.thresholds import Trained, points, prepare, row_divergences, table_lines, train, write_figure
from benchmarks.training import Variant, fit
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.mitigation.divergences import response_divergences
from evenhand.mitigation.labelled_responses import rows_of_several_people
from evenhand.mitigation.trainers import DistillTrainer
from tests.mitigation.tiny_dialogue import WORDS, tiny_base


def trained(value, share, share_of_divergence, removed):
    interval = (removed, removed - 0.1, removed + 0.1)
    return Trained(value, share, 0, share_of_divergence, interval, (0.95, 0.9, 1.0), (0.02, 0.0, 0.04), 1.0)


def test_shares_0_and_1_are_trained_once():
    assert points(["divergence", "bias_value"], [1.0, 0.5, 0.0], [0]) == [
        ("divergence", 1.0, 0),
        ("divergence", 0.5, 0),
        ("bias_value", 0.5, 0),
        ("divergence", 0.0, 0),
    ]


def test_foretold_is_the_share_of_the_divergence_of_what_all_removes():
    rows = [trained("divergence", 1.0, 1.0, 0.4), trained("divergence", 0.5, 0.8, 0.3)]
    rows.append(trained("bias_value", 0.5, 0.5, 0.25))
    lines = table_lines(rows)
    assert lines[2].startswith("| 100 % | either | 0 | 40 % | 40 % [30, 50] | 95 % [90, 100] | 2 % [0, 4] |")
    assert lines[3].startswith("| 50 % | divergence | 0 | 32 % | 30 % ")
    assert lines[4].startswith("| 50 % | bias value | 0 | 20 % | 25 % ")
    assert table_lines(rows[1:])[2].startswith("| 50 % | divergence | 0 | – |")


def responses():
    """Return made-up responses to 12 people with three templates: those to the first half of people are in style 0."""
    words = [word for word in WORDS[7:] if word != "a"] + ["red", "blue", "sky"]
    rows = []
    for template in "xyz":
        for index, word in enumerate(words):
            text = f"a {word}"
            prompt = {"prompt_id": template + word, "text": text, "persona": "", "template": template}
            names = {
                "descriptor": word,
                "noun": "a",
                "noun_phrase": text,
                "axis": "one",
                "response": "sun red sky sun a",
            }
            rows.append(prompt | names | {"cut": True, "style": int(index < 6)})
    frame = pd.DataFrame(rows)
    return Answers(frame, np.eye(2)[frame.pop("style")], ["kind", "curt"])


def test_the_divergence_of_rows_is_the_divergence_of_their_responses():
    base = tiny_base()
    styled = responses()
    rows = rows_of_several_people(styled.table, partial(render_contexts, base), "", 0)
    found = row_divergences(base, DistillTrainer.encode_rows(base, rows))
    np.testing.assert_allclose(found, response_divergences(base, styled.table), rtol=1e-4)
    assert found.min() > 0


def test_a_training_that_remembers_predictions_ends_with_the_same_weights():
    base = tiny_base()
    tuning = prepare(base, responses(), 8, 0)
    rows = tuning.rows.add_column("is_even", [True] * 8)
    weights = []
    for trainer_class in (DistillTrainer, tuning.trainer_class, tuning.trainer_class):
        model, _ = fit(base, Variant(learning_rate=1e-2), rows, 4, trainer_class=trainer_class)
        weights.append({name: value.clone() for name, value in model.state_dict().items() if "lora_B" in name})
    for other in weights[1:]:
        assert all(torch.equal(value, other[name]) for name, value in weights[0].items())
    assert all(value.abs().max() > 0 for value in weights[0].values())


def test_nothing_above_the_threshold_removes_nothing_and_tags_are_trained():
    base = tiny_base()
    tuning = prepare(base, responses(), 8, 0)
    none = train(base, tuning, 4, "divergence", 0.0, 0)
    assert none.share_of_divergence == 0
    np.testing.assert_allclose([none.removed[0], none.kept[0]], [0, 1], atol=0.1)  # Adam takes steps of rounding
    half = train(base, tuning, 4, "divergence", 0.5, 0)
    assert 0.5 < half.share_of_divergence < 1
    tagged = train(base, tuning, 4, "control_tags", 0.5, 0)
    assert tagged.removed != half.removed


def test_the_figure_is_drawn(tmp_path):
    rows = [trained("divergence", 1.0, 1.0, 0.4), trained("divergence", 0.5, 0.8, 0.3)]
    write_figure(tmp_path / "shares.png", [*rows, trained("control_tags", 0.5, 0.5, 0.0)])
    assert (tmp_path / "shares.png").stat().st_size > 1000
