"""HolisticBias prompts: reads the upstream dataset format and fills every template with every noun phrase.

Source: Smith et al. 2022, "I'm sorry to hear that: Finding New Biases in Language Models with a Holistic Descriptor
Dataset", section 2.2 and appendix A.3, and the published format (github.com/facebookresearch/ResponsibleNLP): a folder
of four JSON files. `generate_prompts` returns the upstream generator's rows, in its order, with its columns.
`evenhand.evaluation.datasets.prompts` filters, samples and splits them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.evaluation.datasets.downloads import fetch_pinned_file
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE, TEXT
from evenhand.evaluation.runs.files import sha256_of
from evenhand.evaluation.settings import PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset

FILES = ("descriptors.json", "nouns.json", "sentence_templates.json", "standalone_noun_phrases.json")
PAPER_EDITION = Path(__file__).resolve().parent / "data" / "holistic_bias_paper"

UPSTREAM_COMMIT = "0ec714eb084217f44cd9ac466d9e988c795302f9"
UPSTREAM_URL = (
    f"https://raw.githubusercontent.com/facebookresearch/ResponsibleNLP/{UPSTREAM_COMMIT}/holistic_bias/dataset"
)
# SHA-256 of the four files, in the order of FILES, at that commit.
PINNED = {
    "v1.0": (
        "355ba8039d83f4b387b6f069ea9cb2374c1c5d2abceb2e99a41e9cab664a90ec",
        "ebd3e490fee3ac391fc2421d61be27ffce5912f476c389fe98aca9be8e660966",
        "8b1cf8fc3c9a10b12cf77902e8c2ff3d80e3fcfff2f177a00256925acb4f53a5",
        "46d99a89eb36007e32033c1ebca4df36b08ac0f4f1d0ebce2a7242aaa592f06e",
    ),
    "v1.1": (
        "c1328f0edfdeefb76302d360a01878df3db55f18026f4ea1956b4a0f52daf943",
        "9bbe15bf01ea8827fd5d68a81ee2b05e04bd5f79478d9027efec0b4dbd232ee6",
        "8b1cf8fc3c9a10b12cf77902e8c2ff3d80e3fcfff2f177a00256925acb4f53a5",
        "bac592574f81df55e8c8d8e3919a866d43cbd8df5ae9376a68d95e7b83dbebac",
    ),
}

# What the upstream generator writes where a column does not apply; and the axis of a noun without a descriptor.
NONE, NO_AXIS, NO_PREFERENCE = "(none)", "null", "no_data"
SINGULAR_SLOT, PLURAL_SLOT = "{noun_phrase}", "{plural_noun_phrase}"
PHRASE_COLUMNS = (
    AXIS,
    "bucket",
    DESCRIPTOR,
    "descriptor_gender",
    "descriptor_preference",
    NOUN,
    "plural_noun",
    "noun_gender",
    "noun_phrase",
    "plural_noun_phrase",
    "noun_phrase_type",
)
COLUMNS = (TEXT, *PHRASE_COLUMNS, TEMPLATE, "first_turn_only", "must_be_noun")


@dataclass(frozen=True)
class Descriptor:
    """A term placed before the noun; `gender` restricts it to nouns of that gender."""

    axis: str
    bucket: str
    text: str
    gender: str | None = None
    preference: str | None = None
    article: str | None = None


@dataclass(frozen=True)
class Noun:
    """A word for a person, with its gender: "female", "male" or "neutral"."""

    gender: str
    singular: str
    plural: str


@dataclass(frozen=True)
class Template:
    """A sentence with a slot for a singular or a plural noun phrase."""

    text: str
    first_turn_only: bool = False
    must_be_noun: bool = False


@dataclass(frozen=True)
class Standalone:
    """A noun phrase pattern: with "{noun}" the descriptor follows the noun, without it the phrase is fixed."""

    axis: str
    singular: str
    plural: str | None = None
    preference: str | None = None


@dataclass(frozen=True)
class Taxonomy:
    """The four files of one edition; `sha256` is the hash of their contents and belongs in every signature."""

    name: str
    descriptors: tuple[Descriptor, ...]
    nouns: tuple[Noun, ...]
    templates: tuple[Template, ...]
    standalone: tuple[Standalone, ...]
    sha256: str


def load_taxonomy(source: str | Path = "paper") -> Taxonomy:
    """Return the edition called `source`: "paper" (shipped), "v1.0", "v1.1", or a folder of the four files.

    The two upstream versions are downloaded once, from one pinned commit, and checked by their SHA-256.

    Raises:
        InputError: the name is unknown, the download fails or differs, or an entry cannot be read.
    """
    if source == "paper":
        return _read_folder(PAPER_EDITION, "paper")
    if source in PINNED:
        return _read_folder(_downloaded(str(source)), str(source))
    if Path(source).is_dir():
        return _read_folder(Path(source), str(source))
    known = ", ".join(("paper", *PINNED))
    raise InputError(
        f"taxonomy: {str(source)!r} is neither one of {known} nor a folder; give one of them, or a folder that holds "
        f"{', '.join(FILES)}."
    )


def taxonomy_sha256(prompts: PromptSettings) -> str:
    """Return the hash of the taxonomy whose sentences are scored as they are, without a model's answers.

    Raises:
        InputError: there is no such taxonomy, or a file of prompts is given, which has no nouns to tell apart.
    """
    if prompts.file is not None:
        raise InputError(
            f"prompts.file: {prompts.file} is for generation_bias; this family scores the sentences of "
            "prompts.dataset. Leave the file out, or measure the two apart."
        )
    return load_taxonomy(prompts.dataset).sha256


def _downloaded(version: str) -> Path:
    """Return the folder of a pinned upstream version, downloaded where needed."""
    instead = f"put the four files of HolisticBias {version} into a folder and give its path as the taxonomy."
    paths = [
        fetch_pinned_file(f"{UPSTREAM_URL}/{version}/{file}", sha256, f"holistic_bias_{version}/{file}", instead)
        for file, sha256 in zip(FILES, PINNED[version], strict=True)
    ]
    return paths[0].parent


def generate_prompts(taxonomy: Taxonomy) -> "Dataset":
    """Return every prompt of a taxonomy: each noun phrase, sorted by its columns, in each template, in file order.

    Noun phrases without a noun of their own (a descriptor alone, a fixed phrase) skip the `must_be_noun` templates.
    The rows, their order and the columns (`COLUMNS`) are the upstream generator's, duplicates included.
    """
    phrases = sorted(_noun_phrases(taxonomy))
    columns = {name: pa.array(values) for name, values in zip(PHRASE_COLUMNS, zip(*phrases, strict=True), strict=True)}
    has_noun = np.array([phrase[PHRASE_COLUMNS.index(NOUN)] != NONE for phrase in phrases])
    must_be_noun = np.array([template.must_be_noun for template in taxonomy.templates])
    allowed = has_noun[:, None] | ~must_be_noun[None, :]  # (phrases, templates)

    # Sentences are joined one template at a time, for all its phrases at once, then put into row order: the row of
    # (phrase, template) is its place among the allowed pairs, counted phrase by phrase.
    row = (np.cumsum(allowed.ravel()) - 1).reshape(allowed.shape)
    template_of, phrase_of = np.nonzero(allowed.T)
    order = np.empty(len(template_of), dtype=np.int64)
    order[row[phrase_of, template_of]] = np.arange(len(order))
    sentences = [
        _filled(template.text, columns, pa.array(np.flatnonzero(allowed[:, t])))
        for t, template in enumerate(taxonomy.templates)
    ]
    phrase_rows, template_rows = (pa.array(index[order]) for index in (phrase_of, template_of))
    table = {TEXT: pa.concat_arrays(sentences).take(pa.array(order))}
    table |= {name: column.take(phrase_rows) for name, column in columns.items()}
    for name, values in (
        (TEMPLATE, [template.text for template in taxonomy.templates]),
        ("first_turn_only", [template.first_turn_only for template in taxonomy.templates]),
        ("must_be_noun", [template.must_be_noun for template in taxonomy.templates]),
    ):
        table[name] = pa.array(values).take(template_rows)
    from datasets import Dataset  # brings torch: only where rows are made

    # A fingerprint of its own would be a hash of all rows; these are what the four files and this function make.
    return Dataset(pa.table(table), fingerprint=taxonomy.sha256)


def _filled(template: str, columns: dict[str, pa.Array], phrases: pa.Array) -> pa.Array:
    """Return the sentences of one template over the given phrases."""
    slots = {slot: columns[slot.strip("{}")].take(phrases) for slot in (SINGULAR_SLOT, PLURAL_SLOT) if slot in template}
    pieces = [slots.get(piece, piece) for piece in re.split(r"(\{\w+\})", template)]
    return pc.binary_join_element_wise(*pieces, "")


def _noun_phrases(taxonomy: Taxonomy) -> Iterator[tuple[str, ...]]:
    """Yield each noun phrase with its metadata, a tuple in the order of PHRASE_COLUMNS."""
    for noun in taxonomy.nouns:
        words = (noun.singular, noun.plural, noun.gender)
        yield (NO_AXIS, *[NONE] * 4, *words, f"{spelled_article(noun.singular)} {noun.singular}", noun.plural, "noun")

    for term in taxonomy.descriptors:
        known = (term.axis, term.bucket, term.text, term.gender or NONE, term.preference or NO_PREFERENCE)
        yield (*known, *[NONE] * 3, term.text, term.text, "descriptor")
        before = f"{term.article or spelled_article(term.text)} {term.text}"
        for noun in taxonomy.nouns:
            if term.gender in (None, noun.gender):
                words = (noun.singular, noun.plural, noun.gender)
                yield (*known, *words, f"{before} {noun.singular}", f"{term.text} {noun.plural}", "descriptor_noun")

    for entry in taxonomy.standalone:
        preference = entry.preference or NO_PREFERENCE
        plural = entry.plural or entry.singular
        if "{noun}" not in entry.singular:
            known = (entry.axis, NONE, entry.singular, NONE, preference)
            yield (*known, NONE, NONE, "neutral", entry.singular, plural, "fixed_phrase")
            continue
        known = (entry.axis, NONE, _pattern(entry.singular, "", ""), NONE, preference)
        for noun in taxonomy.nouns:
            words = (noun.singular, noun.plural, noun.gender)
            singular = _pattern(entry.singular, spelled_article(noun.singular), noun.singular)
            yield (*known, *words, singular, _pattern(plural, "", noun.plural), "noun_descriptor")


def spelled_article(word: str) -> str:
    """Return "an" before a first letter in aeiou, else "a": upstream's rule, blind to sound ("an European")."""
    return "an" if word[0].lower() in "aeiou" else "a"


def _pattern(pattern: str, article: str, noun: str) -> str:
    return pattern.replace("{article}", article).replace("{noun}", noun).lstrip()


# Reading the four files. What the generator would not use is refused, never dropped: a misspelt "gender" would
# otherwise pair a descriptor with every noun and nobody would know.


def _read_folder(folder: Path, name: str) -> Taxonomy:
    descriptors, nouns, templates, standalone = (_read_json(folder / file) for file in FILES)
    noun_list = tuple(_read_nouns(str(folder / FILES[1]), nouns))
    genders = sorted({noun.gender for noun in noun_list})
    return Taxonomy(
        name,
        tuple(_read_descriptors(str(folder / FILES[0]), descriptors, genders)),
        noun_list,
        tuple(_read_templates(str(folder / FILES[2]), templates)),
        tuple(_read_standalone(str(folder / FILES[3]), standalone)),
        sha256_of(*(folder / file for file in FILES)),
    )


def _read_json(path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if repeated := sorted({key for key in keys if keys.count(key) > 1}):
            raise InputError(f"{path}: the key {repeated[0]!r} stands twice in one object; join the two.")
        return dict(pairs)

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is missing; a taxonomy folder holds {', '.join(FILES)}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable as JSON in UTF-8 ({error}); correct it there.") from None
    if content == {} and path.name == FILES[3]:  # an edition may do without standalone phrases
        return {}
    return _non_empty(str(path), content, dict, "an object {…}")


def _read_descriptors(file: str, axes: dict[str, Any], genders: list[str]) -> Iterator[Descriptor]:
    for axis, buckets in axes.items():
        _refuse_no_axis(file, axis)
        _non_empty(f"{file}: {axis}", buckets, dict, 'buckets {"all": […]}')
        for bucket, terms in buckets.items():
            for i, term in enumerate(_non_empty(f"{file}: {axis}.{bucket}", terms, list, "a list of descriptors")):
                where = f"{file}: {axis}.{bucket}[{i}]"
                entry = _entry(where, term, "descriptor", ("gender", "preference", "article"))
                if entry.get("gender") not in (None, *genders):
                    raise unknown_name(f"{where}: gender", entry["gender"], genders)
                yield Descriptor(axis, bucket, entry.pop("descriptor"), **entry)


def _read_nouns(file: str, genders: dict[str, Any]) -> Iterator[Noun]:
    for gender, pairs in genders.items():
        for i, pair in enumerate(_non_empty(f"{file}: {gender}", pairs, list, "a list of [singular, plural]")):
            where = f"{file}: {gender}[{i}]"
            if not (isinstance(pair, list) and len(pair) == 2):
                raise InputError(f"{where}: {pair!r} is not a noun; write [singular, plural].")
            yield Noun(gender, *(_text(where, word) for word in pair))


def _read_templates(file: str, templates: dict[str, Any]) -> Iterator[Template]:
    for text, options in templates.items():
        where = f"{file}: {text!r}"
        if not {SINGULAR_SLOT, PLURAL_SLOT} & set(re.findall(r"\{.*?\}", text)):
            raise InputError(f"{where} has no slot; write {SINGULAR_SLOT} or {PLURAL_SLOT} in it.")
        _text(where, text, (SINGULAR_SLOT, PLURAL_SLOT))
        if not isinstance(options, dict):
            raise InputError(f"{where}: {options!r} is not an object of options; write {{}} for none.")
        for key, value in options.items():
            if key not in ("first_turn_only", "must_be_noun"):
                raise unknown_name(f"{where}: option", key, ("first_turn_only", "must_be_noun"))
            if not isinstance(value, bool):
                raise InputError(f"{where}: {key} is {value!r}; write true or false.")
        yield Template(text, **options)


def _read_standalone(file: str, axes: dict[str, Any]) -> Iterator[Standalone]:
    for axis, phrases in axes.items():
        _refuse_no_axis(file, axis)
        for i, phrase in enumerate(_non_empty(f"{file}: {axis}", phrases, list, "a list of noun phrases")):
            where = f"{file}: {axis}[{i}]"
            slots = ("{article}", "{noun}")
            entry = _entry(where, phrase, "noun_phrase", ("plural_noun_phrase", "preference"), slots)
            singular, plural = entry["noun_phrase"], entry.get("plural_noun_phrase", "")
            if "{noun}" not in singular and any(slot in singular + plural for slot in slots):
                raise InputError(f"{where}: a fixed phrase has no slots, a pattern needs {{noun}} in its noun_phrase.")
            if not _pattern(singular, "", ""):
                raise InputError(f"{where}: {singular!r} has no words beside its slots; write the descriptor.")
            yield Standalone(axis, singular, plural or None, entry.get("preference"))


def _refuse_no_axis(file: str, axis: str) -> None:
    if axis == NO_AXIS:
        raise InputError(f"{file}: axis {NO_AXIS!r} is kept for nouns without a descriptor; rename it.")


def _entry(where: str, value: Any, main: str, optional: tuple[str, ...], slots: tuple[str, ...] = ()) -> dict[str, str]:
    """Return an entry's fields; a plain string is its field `main` alone."""
    entry = {main: value} if isinstance(value, str) else value
    if not isinstance(entry, dict) or main not in entry:
        raise InputError(f"{where}: {value!r} is neither a string nor an object with {main!r}; write one of the two.")
    for key, text in entry.items():
        if key not in (main, *optional):
            raise unknown_name(f"{where}: key", key, (main, *optional))
        _text(f"{where}: {key}", text, slots if key.endswith("noun_phrase") else ())
    return dict(entry)


def _text(where: str, value: Any, slots: tuple[str, ...] = ()) -> str:
    if not isinstance(value, str) or not value.strip() or value == NONE:
        raise InputError(f"{where} is {value!r}; write a non-empty string other than {NONE!r}, or leave the key out.")
    rest = value
    for slot in slots:
        rest = rest.replace(slot, "")
    if "{" in rest or "}" in rest:
        raise InputError(f"{where}: {value!r} has braces; the only slots here are: {', '.join(slots) or 'none'}.")
    return value


def _non_empty(where: str, value: Any, kind: type, wanted: str) -> Any:
    if not isinstance(value, kind) or not value:
        raise InputError(f"{where} is {str(value)[:60]!r}; write {wanted} with at least one entry.")
    return value
