"""`import evenhand` gives what docs/python_api.md shows, and the lines there run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand
from evenhand.recipes import testbed
from evenhand.recipes.testbed import grammar
from tools.testbed.corpus import all_prompts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python_api.md"


@pytest.fixture(scope="module")
def lines():
    return re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1]


def test_the_lines_run_on_the_testbeds_responses(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = all_prompts()
    templates, descriptors = (prompts[name].drop_duplicates()[:6] for name in ("template", "descriptor"))
    cells = prompts[prompts["template"].isin(templates) & prompts["descriptor"].isin(descriptors)]
    cells = cells.groupby(["template", "descriptor"]).head(4).reset_index(drop=True)
    cells.assign(response=grammar.sample_responses(cells, seed=0)).to_csv("responses.csv", index=False)
    code = lines.replace("SamLowe/roberta-base-go_emotions", str(testbed.STYLE_CLASSIFIER))
    names = {}
    exec(code.replace("go_emotions", "testbed"), names)
    table = evenhand.score_table(names["scores"])
    assert table["metric"][:3].tolist() == ["fgb", "fgb_corrected", "fgb_pooled_corrected"]
    with_interval = table.dropna(subset="low")
    assert len(with_interval) > 40
    assert (with_interval["low"] < with_interval["high"]).all()
    assert Path("clusters.png").stat().st_size > 1000


def test_every_public_name_is_there():
    for name in (*evenhand.__all__, "__version__"):
        assert getattr(evenhand, name)
    assert set(evenhand.__all__) <= set(dir(evenhand))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = evenhand.nothing


def test_importing_it_imports_nothing_heavy():
    code = "import sys, evenhand; evenhand.InputError; print({'torch', 'pandas', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
