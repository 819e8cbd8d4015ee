"""WinoBias's files as sentence pairs, on sentences of our own in the published format."""

import pytest

from evenhand.evaluation.data.sentence_pairs import read_sentence_pairs, resolve_pairs_file
from evenhand.evaluation.data.winobias import pairs_sha256, winobias_rows
from evenhand.evaluation.errors import InputError

PRO = "1 The nurse called [the plumber] because [he] had lost a key.\n2 [The nurse] slept, since [she] was tired.\n"
ANTI = "1 The nurse called [the plumber] because [she] had lost a key.\n2 [The nurse] slept, since [he] was tired.\n"


@pytest.fixture
def folder(tmp_path):
    for kind in ("type1", "type2"):
        (tmp_path / f"pro_stereotyped_{kind}.txt.test").write_text(PRO)
        (tmp_path / f"anti_stereotyped_{kind}.txt.test").write_text(ANTI)
    return tmp_path


def test_a_pair_differs_in_the_pronoun_only(folder):
    pairs = read_sentence_pairs(resolve_pairs_file(str(folder)))
    assert pairs["pair_id"].tolist() == ["type1.test.1", "type1.test.2", "type2.test.1", "type2.test.2"]
    assert pairs["bias_type"].tolist() == ["type1", "type1", "type2", "type2"]
    assert pairs["more"][0] == "The nurse called the plumber because he had lost a key."
    assert pairs["less"][0] == "The nurse called the plumber because she had lost a key."
    assert pairs["more"][1] == "The nurse slept, since she was tired."


def test_one_file_is_read_with_the_one_beside_it_and_both_count_for_the_identity(folder):
    file = folder / "pro_stereotyped_type1.txt.test"
    assert len(read_sentence_pairs(resolve_pairs_file(str(file)))) == 2
    before = pairs_sha256(file)
    other = folder / "anti_stereotyped_type1.txt.test"
    other.write_text(ANTI.replace("key", "shoe"))
    assert pairs_sha256(file) != before
    other.unlink()
    with pytest.raises(InputError, match="anti_stereotyped_type1.txt.test is missing"):
        winobias_rows(file)


@pytest.mark.parametrize(("text", "match"), [("1 No brackets.\n", "line 1"), (PRO + PRO, "different numbers")])
def test_another_format_is_named(folder, text, match):
    (folder / "pro_stereotyped_type1.txt.test").write_text(text)
    with pytest.raises(InputError, match=match):
        winobias_rows(folder)


def test_other_files_and_folders_are_none(tmp_path):
    assert winobias_rows(tmp_path) is None
    with pytest.raises(InputError, match="unknown"):
        resolve_pairs_file(str(tmp_path))


def test_lines_are_joined_by_their_numbers_in_any_encoding(folder):
    (folder / "pro_stereotyped_type1.txt.test").write_bytes("\ufeff".encode() + PRO.encode() + b"\n\n")
    swapped = "".join(f"{line}\n" for line in reversed(ANTI.replace("key", "café").splitlines()))
    (folder / "anti_stereotyped_type1.txt.test").write_bytes(swapped.encode("cp1252"))
    pairs = read_sentence_pairs(folder / "pro_stereotyped_type1.txt.test")
    assert pairs["more"].tolist()[0] == "The nurse called the plumber because he had lost a key."
    assert pairs["less"].tolist()[0] == "The nurse called the plumber because she had lost a café."
    (folder / "anti_stereotyped_type1.txt.test").write_bytes(b"1 [a] \x81\x8d [he] .\n2 [b] [she]\n")
    with pytest.raises(InputError, match="cannot be read"):
        read_sentence_pairs(folder / "pro_stereotyped_type1.txt.test")
