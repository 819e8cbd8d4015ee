"""The terminal report: narrow, without codes when it is not a terminal, warnings first."""

import io
import re

import pytest
from rich.console import Console

from evaluation.report import generation_page, print_page


def printed(content, capsys) -> str:
    print_page(generation_page(content))
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_no_codes_and_at_most_100_columns_in_a_log(kind, request, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text = printed(request.getfixturevalue(kind), capsys)
    assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    if kind != "hostile":  # the width of some letters is the terminal's own affair
        assert max(map(len, text.split("\n"))) <= 100


def test_verdict_and_warning_come_first_and_the_interval_in_words_last(tuned, capsys):
    text = printed(tuned, capsys)
    first = "\n".join(text.split("\n")[:20])
    joined = re.sub(r"\s+", " ", first)
    assert "pooled FGB* fell by 81 % (95 % interval 78 to 85 %)" in joined
    assert "WARNING Style cluster HATE rose: SCGB* from 0.08 to 0.66 ×10⁻³" in joined
    last = re.sub(r"\s+", " ", "\n".join(text.split("\n")[-10:]))
    assert "intervals made this way would hold the noise-free value 95 times in 100" in last
    assert joined.index("WARNING") < joined.index("measure")
    assert re.search(r"pooled FGB\* +9\.47 +\[8\.97, 9\.97\] +1\.76 \[1\.45, 2\.07\] +−7\.71 \[−8\.27, −7\.15\]", first)


def test_tables_follow_with_reasons_and_rises(tuned, capsys):
    text = printed(tuned, capsys)
    assert "HATE (rose)" in text and "CARE (rose)" not in text
    assert "undefined: only" in text
    assert text.index("by style cluster") < text.index("by axis")
    assert re.search(r"perplexity on neutral dialogue +2\.69 +2\.72 +\+0\.03", text)


def test_numbers_of_a_column_end_in_the_same_place(tuned, capsys):
    lines = printed(tuned, capsys).split("\n")
    ends = {re.search(r"\d+\.\d\d", line).end() for line in lines if re.match(r"(FGB|FGB\*|pooled FGB\*) +\d", line)}
    assert len(ends) == 1


def test_a_single_measurement(single, capsys):
    text = printed(single, capsys)
    assert re.search(r"pooled FGB\* +9\.47 +\[8\.97, 9\.97\]", text)
    assert "before" not in text and "WARNING" not in text and "after" not in text


def test_markup_in_names_is_not_obeyed(hostile):
    out = io.StringIO()
    print_page(generation_page(hostile), Console(file=out, width=4000, force_terminal=True, color_system="standard"))
    assert "[bold red]markup[/bold red]" in out.getvalue()
    assert "\x1b]8;" not in out.getvalue()  # no hyperlinks
