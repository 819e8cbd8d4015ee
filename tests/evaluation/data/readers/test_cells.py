"""Cells of columns that may be outcomes: numbers in several notations, blanks and lists."""

import pytest

from evenhand.evaluation.data.readers.cells import cells_with_lists, check_classes, read_cells
from evenhand.evaluation.data.readers.response_files import ResponseFile, read_responses
from evenhand.evaluation.errors import InputError


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,5", "0,25", "3"], [1.5, 0.25, 3]),
        (["1.234,5", "7"], [1234.5, 7]),
        (["1,234.5", "7"], [1234.5, 7]),
        (["1,234,567", "7"], [1234567, 7]),
        (["1 234,5", "−2,5"], [1234.5, -2.5]),
        (["0,123", "1,234"], [0.123, 1.234]),  # a thousand does not begin with 0
        (["12 %", "7,5%"], [12, 7.5]),
        (["yes", " ", "no", ""], ["yes", None, "no", None]),
        ([1.5, "", None], [1.5, None, None]),
        (["1,234", "2,345"], ["1,234", "2,345"]),  # thousands or decimals
        (["1.5", "n. a."], ["1.5", "n. a."]),
        (["3", "4"], [3, 4]),
        (["1e-3", ".5", "2.", "–"], [0.001, 0.5, 2, None]),
        (["yes ", " yes", "no"], ["yes", "yes", "no"]),
        (["yes ", None, True], ["yes", None, True]),
        ([], []),
    ],
)
def test_a_column_is_numbers_if_all_its_cells_are(cells, values):
    assert read_cells(cells) == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1,234", "2,345"], "'score' .*'1,234' may be 1234 or 1.234"),
        (["1.5", "2.5", "k. A."], "'score' .*'1.5', '2.5', 'k. A.'"),
        (["5 €", "7 €"], "look like numbers: '5 €'"),
        ([1, "2", 3.5], "look like numbers: '2'; write all as numbers, such as 1.5 .in JSON without quotation marks."),
        (["Yes", "no", "yes"], "differ only in case or spaces: 'Yes', 'yes'; write one"),
        (['["kind","curt"]', '["kind"]'], "several classes in a cell"),
        (["kind; curt", "kind", "curt"], "several classes in a cell: 'kind; curt'"),
        (["['kind', 'curt']", "kind"], "several classes in a cell"),
        ([f"a sentence of its own, number {n} of many" for n in range(30)], "30 different texts in 30 cells"),
    ],
)
def test_an_outcome_that_can_be_read_in_two_ways_is_refused_with_its_cells(values, message):
    with pytest.raises(InputError, match=message) as error:
        check_classes("outcomes", "score", values)
    assert error.value.field == "outcomes"


def test_classes_and_people_with_commas_or_slashes_are_no_lists():
    people = ["deaf", "hard-of-hearing", "Deaf and mute", "he/him", "from Paris, France", "24/7 carer"]
    assert cells_with_lists(people) == []
    check_classes("outcomes", "class", ["yes", "no", "don't know", "1st", "2nd", "yes"] * 5)
    check_classes("outcomes", "rank", ["1st", "2nd", "3rd"] * 5)
    check_classes("outcomes", "age", ["18-25", "26-40"] * 5)
    lists = ["deaf/old", "tall | deaf", "tall; old"]
    assert cells_with_lists(["deaf", *lists, "short, wide"]) == lists
    assert cells_with_lists(["from Paris, France", "from Paris, Texas"]) == []


def test_blanks_and_decimal_commas_of_a_file(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("text;descriptor;response;score;solved\nHi;old;Yes.;1,5;yes\nHi;deaf;No.;;\n", encoding="utf-8")
    columns = read_responses(ResponseFile(path))
    assert columns["score"] == [1.5, None] and columns["solved"] == ["yes", None]


def test_not_applicable_is_no_list_of_the_classes_n_and_a():
    check_classes("outcomes", "verdict", ["A", "B", "N/A", "n/a."] * 3)
    with pytest.raises(InputError, match="several classes in a cell: 'A/B'"):
        check_classes("outcomes", "verdict", ["A", "B", "A/B"] * 3)


def test_words_for_a_missing_cell_are_no_class_and_no_number():
    assert read_cells(["high", "N/A", "#REF!", "none", "-"]) == ["high", None, None, "none", "-"]
    assert read_cells(["1,5", "N/A", "NaN", "-"]) == [1.5, None, None, None]
    assert read_cells(["n/a", "nan"]) == [None, None]
