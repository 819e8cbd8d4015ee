"""What the tests of the recipes share."""

import pytest

from tests.forked_commands import ForkedCommands


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """What starts `evenhand` commands in processes of their own."""
    with ForkedCommands(tmp_path_factory.mktemp("commands")) as forked:
        yield forked
