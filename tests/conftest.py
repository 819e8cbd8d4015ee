"""Nothing in the tests reaches a network, a hub or a W&B account."""

import gc
import os
import signal

import pytest

from tests.browser import headless
from tests.forked_commands import OF_TESTS

gc.disable()  # until all tests are collected: importing leaves no garbage, and searches for it take a third of the time
os.environ.update(OF_TESTS)
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"  # trio's goes through all imported objects
# Where the tests run in the background (nohup, some CI) Ctrl-C is ignored, and processes that they start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Hide GPUs, except from `pytest -m gpu`: expected values are a CPU's, and forked processes cannot use CUDA."""
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_modifyitems(items):
    """Files with slow tests first: side by side, the last ones to end are short."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish():
    """Exclude imported objects from garbage collection, which would traverse all of them each time."""
    gc.freeze()
    gc.set_threshold(100_000)  # from 700 objects; the searches took a fifteenth of the time
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def frozen_objects():
    """Exclude what earlier files have left, such as caches: Evenhand collects garbage after each model."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def offensiveness_classifier(tmp_path_factory):
    """The folder of a classifier of random weights with the labels "ok" and "offensive"."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from tools.testbed.classifiers import second_tokenizer

    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    tokenizer = second_tokenizer()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    labels = {"id2label": {0: "ok", 1: "offensive"}, "label2id": {"ok": 0, "offensive": 1}}
    model = BertForSequenceClassification(BertConfig(**sizes, **labels, vocab_size=len(tokenizer), pad_token_id=0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """Runs `evenhand` commands in forked processes."""
    from tests.forked_commands import ForkedCommands  # copies the environment

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # by all workers
    with ForkedCommands(tmp_path_factory.mktemp("commands"), shared) as forked:
        yield forked


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A headless Chromium, the same for all tests; they are skipped where there is none."""
    with headless(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def browser(chromium):
    """The Chromium, as if nothing had been seen in it."""
    return chromium.forget()
