"""The benchmark of large models runs with the built-in model on a CPU."""

from benchmarks import large


def test_each_step_is_measured_and_a_measurement_is_planned(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["large", "--answers", "8"])
    large.main()
    printed = capsys.readouterr().out
    for name in ("start", "answers", "likelihoods", "screen", "peak memory", "--size quick: 3,120 answers", "written"):
        assert name in printed
