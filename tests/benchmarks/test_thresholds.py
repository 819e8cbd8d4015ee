"""The benchmark of thresholds: which trainings it does, and its table."""

from benchmarks.thresholds import Trained, points, table_lines


def trained(value, share, share_of_divergence, removed):
    interval = (removed, removed - 0.1, removed + 0.1)
    return Trained(value, share, 0, share_of_divergence, interval, (0.95, 0.9, 1.0), (0.02, 0.0, 0.04), 1.0)


def test_shares_0_and_1_are_trained_once():
    assert points([1.0, 0.5, 0.0], [0]) == [
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
    assert lines[3].startswith("| 50 % | bias value | 0 | 20 % | 25 % ")
    assert lines[4].startswith("| 50 % | divergence | 0 | 32 % | 30 % ")
    assert table_lines(rows[1:])[2].startswith("| 50 % | bias value | 0 | – |")
