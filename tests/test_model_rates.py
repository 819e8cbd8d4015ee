"""benchmarks/model_rates.py: its shapes are the real models', and its table is whole on any machine."""

from argparse import Namespace

import pytest
import torch

from benchmarks.model_rates import RATES, print_table, too_large
from benchmarks.random_models import network, parameters

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "millions"), [("qwen_chat", 596), ("qwen_8b", 8191), ("llama_1b", 1236), ("gemma_1b", 1000)]
)
def test_a_shape_has_the_parameters_of_the_real_model(name, millions):
    assert round(parameters(network(name, torch.bfloat16, "meta")) / 1e6) == millions


def test_what_memory_does_not_hold_is_not_tried():
    assert too_large(10**15, torch.bfloat16, CPU).startswith("2793967.7 GiB needed")  # 1.5 × 2 × 10¹⁵ / 2³⁰
    assert too_large(1, torch.bfloat16, CPU) == ""


@pytest.mark.slow  # it tunes
def test_each_column_has_a_number_or_a_reason(capsys):
    print_table(["tiny"], Namespace(rows=2, train_rows=2, sentences=20), CPU, torch.float32)
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("| tiny")).strip("|").split("|")
    numbers = dict(zip(RATES, row[2:], strict=True))
    assert all(float(numbers[column].replace(",", "")) > 0 for column in ("generation", "scoring", "KTO with LoRA"))
    for column in RATES:
        assert (numbers[column].strip() == "–") == (f"tiny, {column}: " in printed)
