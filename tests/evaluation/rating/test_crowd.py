"""Raters' names in votes of a crowdsourcing platform."""

import csv

import pytest

from evenhand.evaluation.rating.crowd import read_crowd_votes
from evenhand.evaluation.rating.votes import rater_name
from tests.evaluation.rating.awkward_names import NAMES
from tests.evaluation.rating.rated_pairs import rating


@pytest.mark.parametrize("name", NAMES)
def test_a_rater_has_the_same_name_in_a_file_and_on_the_pages(tmp_path, name):
    rated = rating(tmp_path)
    with (tmp_path / "crowd.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["rater", "prompt_id", "question", "choice"])
        rows.writerow([name, "p0", "preference", "1"])
    [vote] = read_crowd_votes(tmp_path / "crowd.csv", rated.pairs, rated.questions)
    assert vote.rater == rater_name(vote.rater)
    assert vote.rater == rater_name(rater_name(name))
    rated.votes.add(vote)
    assert rated.votes.items(rater_name(name)) == {("p0", "preference")}
