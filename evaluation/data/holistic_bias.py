"""HolisticBias: a reader of the published dataset format, and a generator of prompts from templates and noun phrases.

Source: Smith et al. 2022, "I'm sorry to hear that: Finding New Biases in Language Models with a Holistic Descriptor
Dataset", section 2.2 and appendix A.3, and the published format (github.com/facebookresearch/ResponsibleNLP): a folder
of four JSON files. `generate_prompts` returns the same rows as the upstream generator, in the same order and columns.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool
from pydantic.dataclasses import dataclass as pydantic_dataclass

from evenhand.evaluation.data.downloads import fetch_pinned_file
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.score import AXIS, DESCRIPTOR, NOUN, TEMPLATE, TEXT
from evenhand.evaluation.settings import checked

FILES = ("descriptors.json", "nouns.json", "sentence_templates.json", "standalone_noun_phrases.json")
PAPER_EDITION = Path(__file__).resolve().parent / "files" / "holistic_bias_paper"

UPSTREAM_COMMIT = "0ec714eb084217f44cd9ac466d9e988c795302f9"
UPSTREAM_URL = (
    f"https://raw.githubusercontent.com/facebookresearch/ResponsibleNLP/{UPSTREAM_COMMIT}/holistic_bias/dataset"
)
# Version → SHA-256 of the four files at that commit, in the order of FILES.
FILE_SHA256 = {
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

# Upstream values where a column does not apply, for the axis of a noun without a descriptor, and for no preference.
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
    """A term before a noun; a descriptor with a `gender` is used only with nouns of this gender."""

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
    """A sentence with a slot for a singular or plural noun phrase, which contains a noun if `must_be_noun` is true."""

    text: str
    first_turn_only: bool = False
    must_be_noun: bool = False


@dataclass(frozen=True)
class Standalone:
    """A pattern of a noun phrase whose descriptor follows "{noun}", or a fixed noun phrase without "{noun}"."""

    axis: str
    singular: str
    plural: str | None = None
    preference: str | None = None


@dataclass(frozen=True)
class Taxonomy:
    """An edition of HolisticBias, read from four files; `sha256` is the files' hash, which is part of signatures."""

    name: str
    descriptors: tuple[Descriptor, ...]
    nouns: tuple[Noun, ...]
    templates: tuple[Template, ...]
    standalone: tuple[Standalone, ...]
    sha256: str


def load_taxonomy(source: str | Path = "paper") -> Taxonomy:
    """Return an edition of HolisticBias by its name or from a folder with the four files.

    The names are "paper" (shipped), "v1.0" and "v1.1" (downloaded once).

    Raises:
        InputError: the name is unknown, a download fails or has the wrong SHA-256, or an entry is invalid.
    """
    if source == "paper":
        return _read_folder(PAPER_EDITION, "paper")
    if source in FILE_SHA256:
        return _read_folder(_download(str(source)), str(source))
    if Path(source).is_dir():
        return _read_folder(Path(source), str(source))
    names = ", ".join(("paper", *FILE_SHA256))
    raise InputError(f"taxonomy: {str(source)!r} is no folder; give {names}, or a folder with {', '.join(FILES)}.")


def _download(version: str) -> Path:
    fix = f"put the four files of HolisticBias {version} into a folder and give its path as the taxonomy."
    paths = [
        fetch_pinned_file(f"{UPSTREAM_URL}/{version}/{file}", sha256, f"holistic_bias_{version}/{file}", fix)
        for file, sha256 in zip(FILES, FILE_SHA256[version], strict=True)
    ]
    return paths[0].parent


def representative_taxonomy(taxonomy: Taxonomy, selected: Collection[str | None]) -> tuple[Taxonomy, dict[str, int]]:
    """Return a taxonomy with one template of each kind, and {template: number of templates of its kind}.

    Templates of one kind have the same noun phrases, so one template shows which descriptors a selection leaves. If the
    columns `selected` are not all columns of noun phrases, the taxonomy is unchanged.
    """
    if {*selected} - {None, *PHRASE_COLUMNS}:
        return taxonomy, {template.text: 1 for template in taxonomy.templates}
    kinds: dict[tuple[bool, bool], list[Template]] = {}
    for template in taxonomy.templates:
        kinds.setdefault((template.must_be_noun, template.first_turn_only), []).append(template)
    first = tuple(templates[0] for templates in kinds.values())
    return replace(taxonomy, templates=first), {same[0].text: len(same) for same in kinds.values()}


def generate_prompts(taxonomy: Taxonomy) -> pd.DataFrame:
    """Return all prompts of a taxonomy: each noun phrase in each template.

    Rows are sorted by the columns of the noun phrase, then by the order of the templates in their file. Noun phrases
    without a noun (a descriptor alone, a fixed phrase) are not used in `must_be_noun` templates. Rows, `COLUMNS`, order
    and duplicates are the same as in the upstream generator.
    """
    phrases = sorted(_noun_phrases(taxonomy))
    columns = {name: pa.array(values) for name, values in zip(PHRASE_COLUMNS, zip(*phrases, strict=True), strict=True)}
    has_noun = np.array([phrase[PHRASE_COLUMNS.index(NOUN)] != NONE for phrase in phrases])
    must_be_noun = np.array([template.must_be_noun for template in taxonomy.templates])
    allowed = has_noun[:, None] | ~must_be_noun[None, :]  # (phrases, templates)

    # Each template is filled with all its phrases in one Arrow call; then the sentences are put into row order, in
    # which the row of (phrase, template) is its index among the allowed pairs, phrase by phrase.
    row = (np.cumsum(allowed.ravel()) - 1).reshape(allowed.shape)
    template_index, phrase_index = np.nonzero(allowed.T)
    order = np.empty(len(template_index), dtype=np.int64)
    order[row[phrase_index, template_index]] = np.arange(len(order))
    sentences = [
        _fill_template(template.text, columns, pa.array(np.flatnonzero(allowed[:, t])))
        for t, template in enumerate(taxonomy.templates)
    ]
    phrase_rows, template_rows = (pa.array(index[order]) for index in (phrase_index, template_index))
    table = {TEXT: pa.concat_arrays(sentences).take(pa.array(order))}
    table |= {name: column.take(phrase_rows) for name, column in columns.items()}
    for name, field in ((TEMPLATE, "text"), ("first_turn_only", "first_turn_only"), ("must_be_noun", "must_be_noun")):
        table[name] = pa.array([getattr(template, field) for template in taxonomy.templates]).take(template_rows)
    return pa.table(table).to_pandas()


def _fill_template(template: str, columns: dict[str, pa.Array], phrases: pa.Array) -> pa.Array:
    slots = {slot: columns[slot.strip("{}")].take(phrases) for slot in (SINGULAR_SLOT, PLURAL_SLOT) if slot in template}
    pieces = [slots.get(piece, piece) for piece in re.split(r"(\{\w+\})", template)]
    return pc.binary_join_element_wise(*pieces, "")


def _noun_phrases(taxonomy: Taxonomy) -> Iterator[tuple[str, ...]]:
    for noun in taxonomy.nouns:
        words = (noun.singular, noun.plural, noun.gender)
        yield (NO_AXIS, *[NONE] * 4, *words, f"{spelled_article(noun.singular)} {noun.singular}", noun.plural, "noun")

    for term in taxonomy.descriptors:
        metadata = (term.axis, term.bucket, term.text, term.gender or NONE, term.preference or NO_PREFERENCE)
        yield (*metadata, *[NONE] * 3, term.text, term.text, "descriptor")
        phrase = f"{term.article or spelled_article(term.text)} {term.text}"
        for noun in taxonomy.nouns:
            if term.gender in (None, noun.gender):
                words = (noun.singular, noun.plural, noun.gender)
                yield (*metadata, *words, f"{phrase} {noun.singular}", f"{term.text} {noun.plural}", "descriptor_noun")

    for entry in taxonomy.standalone:
        preference = entry.preference or NO_PREFERENCE
        plural = entry.plural or entry.singular
        if "{noun}" not in entry.singular:
            metadata = (entry.axis, NONE, entry.singular, NONE, preference)
            yield (*metadata, NONE, NONE, "neutral", entry.singular, plural, "fixed_phrase")
            continue
        metadata = (entry.axis, NONE, _fill_pattern(entry.singular, "", ""), NONE, preference)
        for noun in taxonomy.nouns:
            words = (noun.singular, noun.plural, noun.gender)
            singular = _fill_pattern(entry.singular, spelled_article(noun.singular), noun.singular)
            yield (*metadata, *words, singular, _fill_pattern(plural, "", noun.plural), "noun_descriptor")


def spelled_article(word: str) -> str:
    """Return the article of a word by the upstream rule, which ignores the sound: "an" if it begins with aeiou.

    All other words have "a"; "European" has "an".
    """
    return "an" if word[0].lower() in "aeiou" else "a"


def _fill_pattern(pattern: str, article: str, noun: str) -> str:
    return pattern.replace("{article}", article).replace("{noun}", noun).lstrip()


# The format of the four files. Unknown keys are errors: a misspelt "gender", if ignored, would allow any noun.


def _check_text(text: str, *slots: str) -> str:
    rest = reduce(lambda rest, slot: rest.replace(slot, ""), slots, text)
    if not rest.strip() or text == NONE or {"{", "}"} & {*rest}:
        raise ValueError(f"write a text other than {NONE!r}, with no braces except {', '.join(slots) or 'none'}")
    return text


def _check_axis(axis: str) -> str:
    if axis == NO_AXIS:
        raise ValueError(f"{NO_AXIS!r} is reserved for nouns without a descriptor; rename the axis")
    return axis


def _check_template(text: str) -> str:
    if SINGULAR_SLOT not in text and PLURAL_SLOT not in text:
        raise ValueError(f"insert {SINGULAR_SLOT} or {PLURAL_SLOT}")
    return _check_text(text, SINGULAR_SLOT, PLURAL_SLOT)


_Text = Annotated[str, AfterValidator(_check_text)]
_Phrase = Annotated[str, AfterValidator(lambda text: _check_text(text, "{article}", "{noun}"))]
_Axis = Annotated[str, AfterValidator(_check_axis)]


_entry = pydantic_dataclass(config=ConfigDict(extra="forbid"))


@_entry
class _Descriptor:
    descriptor: _Text
    gender: _Text | None = None
    preference: _Text | None = None
    article: _Text | None = None


@_entry
class _Standalone:
    noun_phrase: _Phrase
    plural_noun_phrase: _Phrase | None = None
    preference: _Text | None = None


@_entry
class _Options:
    first_turn_only: StrictBool = False
    must_be_noun: StrictBool = False


def _entries(kind: type, main: str) -> Any:
    """Return the type of a non-empty list of entries, in which a text stands for {main: text}."""
    entry = Annotated[kind, BeforeValidator(lambda it: {main: it} if isinstance(it, str) else it)]
    return Annotated[list[entry], Field(min_length=1)]


_FORMATS = (
    dict[_Axis, Annotated[dict[str, _entries(_Descriptor, "descriptor")], Field(min_length=1)]],
    dict[str, Annotated[list[tuple[_Text, _Text]], Field(min_length=1)]],
    dict[Annotated[str, AfterValidator(_check_template)], _Options],
    dict[_Axis, _entries(_Standalone, "noun_phrase")],
)


def _read_folder(folder: Path, name: str) -> Taxonomy:
    axes, genders, templates, phrases = map(_read_json, (folder / file for file in FILES), _FORMATS)
    for axis, buckets in axes.items():
        for entry in (entry for entries in buckets.values() for entry in entries):
            if entry.gender not in (None, *genders):
                raise unknown_name(f"{folder / FILES[0]}: {axis}: gender", entry.gender, genders)
    return Taxonomy(
        name,
        tuple(
            Descriptor(axis, bucket, *astuple(entry))
            for axis, buckets in axes.items()
            for bucket, entries in buckets.items()
            for entry in entries
        ),
        tuple(Noun(gender, *pair) for gender, pairs in genders.items() for pair in pairs),
        tuple(Template(text, *astuple(options)) for text, options in templates.items()),
        tuple(Standalone(axis, *astuple(entry)) for axis, entries in phrases.items() for entry in entries),
        sha256_of(*(folder / file for file in FILES)),
    )


def _read_json(path: Path, kind: Any) -> Any:
    def check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"one of the keys {', '.join(key for key, _ in pairs)} occurs twice")
        return dict(pairs)

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=check_unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable as JSON in UTF-8 ({error}); correct it.") from None
    if not content and path.name != FILES[3]:  # standalone phrases are optional
        raise InputError(f"{path} is empty; write at least one entry.")
    return checked(kind, content, str(path))
