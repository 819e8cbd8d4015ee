"""Files from outside: YAML without aliases and repeated keys, and with limits."""

import os

import pytest
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import (
    check_links_inside,
    dump_yaml,
    files_sha256,
    load_yaml,
    read_json,
    read_text,
    read_yaml,
)


def test_aliases_are_refused_at_once(tmp_path):
    """Ten levels of ten aliases each would be ten billion values."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (tmp_path / "c.yaml").write_text("\n".join(["a0: &a0 x", *levels]))
    with pytest.raises(InputError, match=r"--config: .*line 2: .*\*a0"):
        read_yaml(tmp_path / "c.yaml", "--config")


@pytest.mark.parametrize(
    ("text", "line"), [("a: 1\nb: 2\na: 3", 3), ("g:\n  x: 1\n  y: 2\n  x: 3", 4), ("g: {x: 1,\n x: 2}", 2)]
)
def test_a_repeated_key_is_named_with_its_line(text, line):
    with pytest.raises(yaml.YAMLError, match=f"^line {line}: .*'[ax]'"):
        load_yaml(text)


def test_plain_values_are_those_of_yaml_1_2():
    text = "[1:30, 010, no, 2026-01-01, 1_0, 0x1F, 1e3, -2, .5, true, null, ~]"
    expected = ["1:30", "010", "no", "2026-01-01", "1_0", "0x1F", 1000.0, -2, 0.5, True, None, None]
    assert load_yaml(text) == expected
    assert load_yaml(dump_yaml(expected)) == expected == yaml.safe_load(dump_yaml(expected))


def test_what_cannot_be_read_is_one_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "long").write_text("x" * 11)
    for name in ("absent", "pipe", "bytes", "long", "a" * 300, "nul\0", "."):
        with pytest.raises(InputError, match="^field: "):
            read_text(tmp_path / name, "field", limit=10)
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(InputError, match="^field: .*JSON"):
        read_json(tmp_path / "deep", "field")


def test_a_hash_of_files_is_of_their_names_and_of_each_content(tmp_path):
    for name, text in {"a": "xy", "b": "z", "c": "x", "d": "yz"}.items():
        (tmp_path / name).write_text(text)
    first = files_sha256({"a": tmp_path / "a", "b": tmp_path / "b"})
    assert first == files_sha256({"b": tmp_path / "b", "a": tmp_path / "a"})
    assert first != files_sha256({"a": tmp_path / "c", "b": tmp_path / "d"})  # the same joined content
    assert first != files_sha256({"a": tmp_path / "a", "other": tmp_path / "b"})


def test_links_of_trackers_are_left_out_in_every_folder(tmp_path):
    """W&B links the logs of a run to the user's cache, also in the folders of a loop's stages."""
    elsewhere = tmp_path / "cache.log"
    elsewhere.touch()
    folder = tmp_path / "loop"
    logs = folder / "before" / "wandb" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(elsewhere)
    check_links_inside(folder, "output_dir", leave_out=("wandb",))
    (folder / "before" / "table").symlink_to(elsewhere)
    with pytest.raises(InputError, match="symbolic link"):
        check_links_inside(folder, "output_dir", leave_out=("wandb",))
