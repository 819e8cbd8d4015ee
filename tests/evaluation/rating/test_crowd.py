"""Ratings of a crowdsourcing platform, as a file brings them back."""

import csv

import pytest

from evenhand.evaluation.rating.crowd import read_crowd_votes
from evenhand.evaluation.rating.votes import rater_name
from tests.evaluation.rating.awkward_names import NAMES
from tests.evaluation.rating.rated_pairs import rating


@pytest.mark.parametrize("name", NAMES)
def test_a_rater_of_a_file_has_the_name_that_the_pages_give(tmp_path, name):
    judged = rating(tmp_path)
    with (tmp_path / "crowd.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["rater", "prompt_id", "question", "choice"])
        rows.writerow([name, "p0", "preference", "1"])
    [vote] = read_crowd_votes(tmp_path / "crowd.csv", judged.pairs, judged.questions)
    assert vote.rater == rater_name(vote.rater)
    assert vote.rater == rater_name(rater_name(name))
    judged.votes.add(vote)
    assert judged.votes.items(rater_name(name)) == {("p0", "preference")}
