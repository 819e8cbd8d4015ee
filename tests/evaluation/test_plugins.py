"""A module in a user's own folder defines one family or method; anything else is an error that names the file."""

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation import methods

BEGINNING = "from evenhand.mitigation.methods import Method\n"


@pytest.fixture
def write_method(tmp_path, monkeypatch):
    """A function that writes a module of methods. Each test uses a new name: Python loads a name only once."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])

    def write(name, code):
        (tmp_path / f"{name}.py").write_text(BEGINNING + code)

    return write


def test_the_class_is_the_one_from_which_no_other_is_derived(write_method):
    write_method("derived_one", "class Base(Method): pass\nclass Derived(Base): pass\n")
    assert methods.method_class("derived_one").__name__ == "Derived"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("without_class", "VALUE = 1\n", "defines none"),
        ("two_classes", "class A(Method): pass\nclass B(Method): pass\n", "defines A, B"),
    ],
)
def test_a_module_without_one_class_is_named(write_method, name, code, words):
    write_method(name, code)
    with pytest.raises(InputError, match=words) as error:
        methods.method_class(name)
    assert f"{name}.py" in str(error.value)


def test_an_unknown_name_says_which_folder_of_the_user_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path / "methods")])
    with pytest.raises(InputError, match="does not exist"):
        methods.method_class("shorter")


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("misspelt", "x = 1\ndef f(\n", "line 3, cannot be imported: SyntaxError: '(' was never closed"),
        ("raises", "x = {}\n\ny = x['key']\n", "line 4, cannot be imported: KeyError: 'key'"),
        (
            "imports_nothing",
            "import no_such_module\n",
            "line 2, cannot be imported: ModuleNotFoundError: No module named",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(write_method, tmp_path, name, code, words):
    write_method(name, code)
    with pytest.raises(InputError) as error:
        methods.method_class(name)
    assert str(error.value).startswith(f"method: {tmp_path / name}.py, {words}")
