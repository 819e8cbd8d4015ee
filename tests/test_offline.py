"""Offline nothing uses the network: neither a whole small measurement nor a command with a name of the hub."""

import socket

import pytest

from evenhand.evaluation.metrics.sentence_pairs import Settings
from evenhand.recipes.cli import main
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from tests.testbed_settings import MASKED_MODEL

HERE = (None, "", "localhost", "127.0.0.1", "::1")


@pytest.fixture
def tried(monkeypatch):
    """Every address that was looked up or connected to and is not of this machine; each is refused."""
    addresses = []

    def refuse(name, host_of):
        plain = getattr(socket.socket, name, None) or getattr(socket, name)

        def checked(*arguments, **options):
            host = host_of(*arguments)
            if host not in HERE:
                addresses.append(host)
                raise OSError(f"the network was tried: {host}")
            return plain(*arguments, **options)

        return checked

    def peer(one, address):
        return None if one.family == socket.AF_UNIX else address[0]

    monkeypatch.setattr(socket, "getaddrinfo", refuse("getaddrinfo", lambda host, *_: host))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse(name, peer))
    return addresses


def test_a_measurement_of_the_testbed(tried, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("more,less\nMany bakers are generous.,Many pilots are generous.\n")
    settings = {
        "model": MASKED_MODEL,
        "metrics": ["sentence_pairs"],
        "sentence_pairs": Settings(pairs=str(pairs)),
    }
    measure(MeasureSettings(**settings, report_to="none", output_dir=tmp_path / "run"))
    assert (tmp_path / "run" / "scores.json").exists() and tried == []


@pytest.mark.parametrize("command", ["measure", "loop"])
def test_a_name_that_is_neither_here_nor_on_the_hub(tried, tmp_path, capsys, command):
    arguments = [command, "nobody/nothing", "--report_to", "none", "--output_dir", str(tmp_path / "run")]
    assert main(arguments) == 2
    assert "'nobody/nothing' is no folder" in capsys.readouterr().err and tried == []
