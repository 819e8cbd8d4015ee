"""The documentation site is built without a warning, has every public name, and loads nothing from other hosts."""

import os
import re
import subprocess
import sys

import pytest

import evenhand
from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT

for package in ("material", "mkdocstrings"):
    pytest.importorskip(package, reason="needs the site's packages (pip install '.[docs]')")
pytestmark = pytest.mark.slow


def test_the_site_is_built_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    api = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert all(f'id="evenhand.{name}"' in api for name in evenhand.__all__)
    assert "measure --prompts" in (tmp_path / "settings.html").read_text(encoding="utf-8")
    assert "pooled FGB" in (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//[^">]+', text)
        assert not re.findall(r'<link[^>]+rel="?(?:stylesheet|preconnect)"?[^>]+(?:https?:)?//[^">]+', text)
