"""Users' prompts and personas in three formats, and invalid files."""

import json
import re

import pandas as pd
import pytest

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_cells, select_prompts
from evenhand.evaluation.data.readers.prompt_files import load_personas, paper_personas, read_prompts
from evenhand.evaluation.errors import InputError

ROWS = [
    {"text": "I'm old.", "template": "I'm {noun_phrase}.", "axis": "age", "descriptor": "old", "weight": 1},
    {
        "text": "I'm a kid, see.",
        "template": "I'm {noun_phrase}, see.",
        "axis": "null",
        "descriptor": "None",
        "weight": 2,
    },
    {"text": "I'm old.", "template": "I'm {noun_phrase}.", "axis": "age", "descriptor": "old", "weight": 3},
]


def write(path, rows):
    if path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    elif path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


formats = pytest.mark.parametrize("name", ["prompts.parquet", "prompts.csv", "prompts.jsonl"])


@formats
def test_each_format_gives_the_same_prompts(tmp_path, name):
    prompts = read_prompts(write(tmp_path / name, ROWS))
    assert list(prompts) == ["prompt_id", "persona", "text", "template", "axis", "descriptor", "weight"]
    assert prompts[list(ROWS[0])].to_dict("records") == ROWS
    assert set(prompts["persona"]) == {""}
    assert len(set(prompts["prompt_id"])) == 3  # the third repeats the first
    assert prompts["prompt_id"].tolist() == read_prompts(write(tmp_path / "again.csv", ROWS))["prompt_id"].tolist()


def test_a_written_sample_is_read_back_unchanged(tmp_path):
    sample = sample_cells(
        select_prompts(generate_prompts(load_taxonomy()), {"axis": "nonce"}), 2, seed=1, personas=load_personas()
    )
    for name in ("prompts.parquet", "prompts.csv", "prompts.jsonl"):
        read = read_prompts(write(tmp_path / name, sample.to_dict("records")))
    pd.testing.assert_frame_equal(read, sample.astype(read.dtypes))


@formats
def test_each_row_is_repeated_by_its_repeats_else_per_cell_times(tmp_path, name):
    rows = [row | {"prompt_id": i, "repeats": n} for row, i, n in zip(ROWS, "xyz", [2, 1, 3], strict=True)]
    prompts = read_prompts(write(tmp_path / name, rows), answers_per_cell=4)
    assert prompts["prompt_id"].tolist() == ["x", "x#2", "y", "z", "z#2", "z#3"]
    assert prompts["weight"].tolist() == [1, 1, 2, 3, 3, 3] and "repeats" not in prompts
    plain = read_prompts(write(tmp_path / f"plain_{name}", ROWS), answers_per_cell=4)
    assert plain["weight"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert len(set(plain["prompt_id"])) == 12  # the third row repeats the first


@formats
def test_ids_and_repeats_may_be_numbers(tmp_path, name):
    rows = [row | {"prompt_id": i, "repeats": n} for row, i, n in zip(ROWS, (7, 8, 9), (2.0, 1.0, 1.0), strict=True)]
    assert read_prompts(write(tmp_path / name, rows))["prompt_id"].tolist() == ["7", "7#2", "8", "9"]


def test_the_shipped_personas_mention_no_descriptor_and_no_noun():
    personas = load_personas()
    assert len(personas) >= 60
    assert all(len(persona.split("\n")) == 2 for persona in personas)
    taxonomy = load_taxonomy()
    words = [d.descriptor for d in taxonomy.descriptors] + [
        w for noun in taxonomy.nouns for w in (noun.singular, noun.plural)
    ]
    words += [s.noun_phrase.replace("{article} {noun} ", "") for s in taxonomy.standalone]
    pattern = re.compile("|".join(rf"\b{re.escape(word).replace('-', '[- ]')}\b" for word in words), re.IGNORECASE)
    assert [match[0] for persona in personas for match in pattern.finditer(persona)] == []


def named(*names, **columns):
    """Return rows that differ in the name of the descriptor only."""
    return [
        ROWS[0] | {"descriptor": name, **{key: value[i] for key, value in columns.items()}}
        for i, name in enumerate(names)
    ]


def test_spellings_that_look_alike_are_one_descriptor(tmp_path):
    rows = named("café", "cafe\u0301", " café", "café\u00a0", "ca\u200bfé", "caf  é")
    prompts = read_prompts(write(tmp_path / "p.jsonl", [row | {"axis": f"{row['axis']} "} for row in rows]))
    assert prompts["descriptor"].tolist() == ["café"] * 5 + ["caf é"]
    assert set(prompts["axis"]) == {"age"}


@pytest.mark.parametrize("name", ["nan", "NaT", "<NA>", "#N/A"])
def test_what_programs_write_for_no_value_is_nobody(tmp_path, name):
    with pytest.raises(InputError, match="descriptor, row 2 .* no value; write who it is"):
        read_prompts(write(tmp_path / "p.jsonl", named("old", name)))
    assert len(read_prompts(write(tmp_path / "p.jsonl", named("old", "none")))) == 2


@pytest.mark.parametrize("name", ["untuned", "cue", "cut", "opening"])
def test_columns_with_a_meaning_in_runs_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=f" {name} "):
        read_prompts(write(tmp_path / "p.csv", [row | {name: "x"} for row in ROWS]))


def test_a_bucket_is_a_subgroup_of_an_axis_whose_descriptors_have_one_each(tmp_path):
    assert len(read_prompts(write(tmp_path / "p.csv", named("a", "b", "a", bucket="xyx")))) == 3
    with pytest.raises(InputError, match="bucket .*'a'"):
        read_prompts(write(tmp_path / "p.csv", named("a", "b", "a", bucket="xyy")))


def test_unused_columns_may_have_any_values(tmp_path):
    values = [10**400, "text", {"a": [1]}]
    rows = [row | {"mixed": value, "large": 2**64 + i} for i, (row, value) in enumerate(zip(ROWS, values, strict=True))]
    prompts = read_prompts(write(tmp_path / "p.jsonl", rows))
    assert prompts["mixed"].tolist() == [json.dumps(value) for value in values]
    assert prompts["large"].tolist() == [str(2**64 + i) for i in range(3)]


def test_a_persona_may_be_null(tmp_path):
    assert (
        read_prompts(write(tmp_path / "p.jsonl", [row | {"persona": None} for row in ROWS]))["persona"].tolist()
        == [""] * 3
    )


def test_personas_of_the_paper_are_the_shipped_ones_after_your_persona():
    for plain, marked in zip(load_personas(), paper_personas(), strict=True):
        assert marked.split("\n") == [f"your persona: {line}" for line in plain.split("\n")]


def test_the_second_response_to_an_id_is_no_other_row(tmp_path):
    rows = [row | {"prompt_id": name} for row, name in zip(ROWS, ["x", "x#2", "y"], strict=True)]
    path = write(tmp_path / "p.jsonl", rows)
    assert read_prompts(path)["prompt_id"].tolist() == ["x", "x#2", "y"]
    with pytest.raises(InputError, match="'x#2'"):
        read_prompts(path, answers_per_cell=2)


def test_a_byte_order_mark_is_no_part_of_a_persona(tmp_path):
    path = tmp_path / "personas.txt"
    path.write_bytes("I ski.\r\nI cook.\r\n\r\nI sing.\r\nI read.\r\n".encode("utf-8-sig"))
    assert load_personas(path) == ("I ski.\nI cook.", "I sing.\nI read.")


def test_templates_may_be_numbered(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"text": "Hi", "template": 1, "axis": 2, "descriptor": 3}\n')
    assert read_prompts(path)[["template", "axis", "descriptor"]].values.tolist() == [["1", "2", "3"]]
