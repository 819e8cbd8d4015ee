"""HolisticBias: a reader of the published dataset format, and a generator of prompts from templates and noun phrases.

Source: Smith et al. 2022, "I'm sorry to hear that: Finding New Biases in Language Models with a Holistic Descriptor
Dataset", section 2.2 and appendix A.3, and the published format (github.com/facebookresearch/ResponsibleNLP): a folder
of four JSON files. `generate_prompts` returns the same rows as the upstream generator, in the same order and columns.
"""

import json
from collections.abc import Iterator
from dataclasses import Field, astuple
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd
from pydantic import AfterValidator, ConfigDict, StrictBool
from pydantic.dataclasses import dataclass

from evenhand.evaluation import columns
from evenhand.evaluation.data.downloads import fetch_pinned_file
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import files_sha256, read_text, unique_keys
from evenhand.evaluation.settings import checked
from evenhand.evaluation.untrusted_text import clean_name

FILES = ("descriptors.json", "nouns.json", "sentence_templates.json", "standalone_noun_phrases.json")
SHIPPED = ("paper", "more")  # the editions that need no download
PAPER_EDITION = Path(__file__).resolve().parent / "files" / "holistic_bias_paper"
MORE = PAPER_EDITION.with_name("holistic_bias_more")  # what the edition "more" adds to the paper's

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
NONE = "(none)"
NO_AXIS = "null"
NO_PREFERENCE = "no_data"
SINGULAR_SLOT = "{noun_phrase}"
PLURAL_SLOT = "{plural_noun_phrase}"


class NounPhrase(NamedTuple):
    """A noun phrase of a taxonomy; the fields are columns of prompts, and phrases are sorted by them in this order."""

    axis: str
    bucket: str = NONE
    descriptor: str = NONE
    descriptor_gender: str = NONE
    descriptor_preference: str = NONE
    noun: str = NONE
    plural_noun: str = NONE
    noun_gender: str = NONE
    noun_phrase: str = NONE
    plural_noun_phrase: str = NONE
    noun_phrase_type: str = NONE


PHRASE_COLUMNS = NounPhrase._fields
COLUMNS = (columns.TEXT, *PHRASE_COLUMNS, columns.TEMPLATE, "first_turn_only", "must_be_noun")


def _check_text(text: str, *slots: str) -> str:
    """Return a text of the taxonomy; ValueError if it is empty, NONE, or has braces other than the slots."""
    rest = text
    for slot in slots:
        rest = rest.replace(slot, "")
    if not rest.strip() or text == NONE or {"{", "}"} & {*rest}:
        raise ValueError(f"write a text other than {NONE!r}, with no braces except {', '.join(slots) or 'none'}")
    return clean_name(text) if not slots else text


def _check_template(text: str) -> str:
    if SINGULAR_SLOT not in text and PLURAL_SLOT not in text:
        raise ValueError(f"insert {SINGULAR_SLOT} or {PLURAL_SLOT}")
    return _check_text(text, SINGULAR_SLOT, PLURAL_SLOT)


_Text = Annotated[str, AfterValidator(_check_text)]
_Phrase = Annotated[str, AfterValidator(lambda text: _check_text(text, "{article}", "{noun}"))]
# Unknown keys are errors: a misspelt "gender", if ignored, would allow any noun.
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Descriptor:
    """A term before a noun; a descriptor with a `gender` is used only with nouns of this gender."""

    axis: str
    bucket: str
    descriptor: _Text
    gender: _Text | None = None
    preference: _Text | None = None
    article: _Text | None = None


@dataclass(frozen=True, config=_STRICT)
class Noun:
    """A word for a person, with its gender: "female", "male" or "neutral"."""

    gender: str
    singular: _Text
    plural: _Text


@dataclass(frozen=True, config=_STRICT)
class Template:
    """A sentence with a slot for a singular or plural noun phrase, which contains a noun if `must_be_noun` is true."""

    text: Annotated[str, AfterValidator(_check_template)]
    first_turn_only: StrictBool = False
    must_be_noun: StrictBool = False


@dataclass(frozen=True, config=_STRICT)
class Standalone:
    """A pattern of a noun phrase whose descriptor follows "{noun}", or a fixed noun phrase without "{noun}"."""

    axis: str
    noun_phrase: _Phrase
    plural_noun_phrase: _Phrase | None = None
    preference: _Text | None = None


@dataclass(frozen=True)
class Taxonomy:
    """An edition of HolisticBias, read from four files; `sha256` is the files' hash, which is part of signatures."""

    descriptors: tuple[Descriptor, ...]
    nouns: tuple[Noun, ...]
    templates: tuple[Template, ...]
    standalone: tuple[Standalone, ...]
    sha256: str

    def phrases(self) -> pd.DataFrame:
        """Return all noun phrases, sorted, with the columns `PHRASE_COLUMNS`."""
        # Columns of objects: with pandas' Arrow strings, splitting and sampling the prompts takes three times as long.
        return pd.DataFrame(sorted(_noun_phrases(self)), columns=list(PHRASE_COLUMNS), dtype=object)


class AnyTaxonomy(Protocol):
    """A taxonomy in any language: noun phrases, and templates to insert them into."""

    __dataclass_fields__: ClassVar[dict[str, Field]]

    @property
    def templates(self) -> tuple[Template, ...]: ...

    @property
    def sha256(self) -> str: ...

    def phrases(self) -> pd.DataFrame: ...


# The content of the four files: descriptors by axis and bucket, pairs of nouns by gender, options of templates by their
# text, and noun phrases by axis. An entry is a text, or an object with the text and its options.
_Entry = str | dict[str, object]
_Descriptors = dict[str, dict[str, list[_Entry]]]
_Nouns = dict[str, list[tuple[str, str]]]
_Templates = dict[str, dict[str, object]]
_Phrases = dict[str, list[_Entry]]


def load_taxonomy(source: str | Path = "paper") -> Taxonomy:
    """Return an edition of HolisticBias by its name or from a folder with the four files.

    The names are "paper" (shipped), "more" (the same with our demonyms and nouns), "v1.0" and "v1.1" (downloaded once).

    Raises:
        InputError: the name is unknown, a download fails or has the wrong SHA-256, or an entry is invalid.
    """
    folder = _taxonomy_folder(source)
    paths = {file: folder / file for file in FILES}
    if source == "more":
        paths |= {f"more/{file}": MORE / file for file in FILES[:2]}
    texts = [(str(path), read_text(path, "prompts.dataset")) for path in paths.values()]
    return _parse_taxonomy(tuple(texts), files_sha256(paths))


@lru_cache(maxsize=4)
def _parse_taxonomy(files: tuple[tuple[str, str], ...], sha256: str) -> Taxonomy:
    """Return the taxonomy of the paths and texts of its files, which is parsed once for all runs of a loop."""
    axes: _Descriptors = _parse_json(files[0], _Descriptors)
    genders: _Nouns = _parse_json(files[1], _Nouns)
    templates: _Templates = _parse_json(files[2], _Templates)
    phrases: _Phrases = _parse_json(files[3], _Phrases)
    if len(files) > len(FILES):  # the edition "more"
        more_axes: _Descriptors = _parse_json(files[4], _Descriptors)
        more_genders: _Nouns = _parse_json(files[5], _Nouns)
        axes |= {axis: axes.get(axis, {}) | buckets for axis, buckets in more_axes.items()}
        genders |= {gender: [*genders.get(gender, []), *pairs] for gender, pairs in more_genders.items()}
    descriptor_rows = [
        {"axis": axis, "bucket": bucket} | _options(entry, "descriptor")
        for axis, buckets in axes.items()
        for bucket, entries in buckets.items()
        for entry in entries
    ]
    noun_rows = [
        {"gender": gender, "singular": one, "plural": many} for gender, pairs in genders.items() for one, many in pairs
    ]
    template_rows = [{"text": text} | options for text, options in templates.items()]
    phrase_rows = [
        {"axis": axis} | _options(entry, "noun_phrase") for axis, entries in phrases.items() for entry in entries
    ]
    paths = [path for path, _ in files]
    descriptors: tuple[Descriptor, ...] = checked(tuple[Descriptor, ...], descriptor_rows, paths[0])
    taxonomy = Taxonomy(
        descriptors=descriptors,
        nouns=checked(tuple[Noun, ...], noun_rows, paths[1]),
        templates=checked(tuple[Template, ...], template_rows, paths[2]),
        standalone=checked(tuple[Standalone, ...], phrase_rows, paths[3]),
        sha256=sha256,
    )
    for entry in descriptors:
        if entry.gender is not None and entry.gender not in genders:
            raise unknown_name(f"{paths[0]}: {entry.axis}: gender", entry.gender, genders)
    return taxonomy


def _taxonomy_folder(source: str | Path) -> Path:
    """Return the folder with the four files of an edition; InputError if there is none."""
    if source in SHIPPED:
        return PAPER_EDITION
    folder = _download(str(source)) if source in FILE_SHA256 else Path(source)
    if not folder.is_dir():
        names = ", ".join((*SHIPPED, *FILE_SHA256))
        raise InputError(
            "taxonomy", f"{str(source)!r} is no folder; give {names}, or a folder with {', '.join(FILES)}."
        )
    return folder


def _options(entry: _Entry, name: str) -> dict[str, object]:
    """Return an entry of a file as an object, with the text of the entry as `name`."""
    return {name: entry} if isinstance(entry, str) else entry


def _download(version: str) -> Path:
    fix = f"put the four files of HolisticBias {version} into a folder and give its path as the taxonomy."
    paths = [
        fetch_pinned_file(f"{UPSTREAM_URL}/{version}/{file}", sha256, f"holistic_bias_{version}/{file}", fix)
        for file, sha256 in zip(FILES, FILE_SHA256[version], strict=True)
    ]
    return paths[0].parent


def generate_prompts(taxonomy: AnyTaxonomy) -> pd.DataFrame:
    """Return all prompts of a taxonomy: each noun phrase in each template.

    Rows are sorted by the columns of the noun phrase, then by the order of the templates in their file. Noun phrases
    without a noun (a descriptor alone, a fixed phrase) are not used in `must_be_noun` templates. Rows, `COLUMNS`, order
    and duplicates are the same as in the upstream generator.
    """
    phrases = taxonomy.phrases()
    templates = pd.DataFrame(
        map(astuple, taxonomy.templates), columns=[columns.TEMPLATE, "first_turn_only", "must_be_noun"]
    )
    has_noun = (phrases[columns.NOUN] != NONE).to_numpy()
    phrase_rows, template_rows = np.nonzero(has_noun[:, None] | ~templates["must_be_noun"].to_numpy(dtype=bool))
    parts = [phrases.iloc[phrase_rows].reset_index(drop=True), templates.iloc[template_rows].reset_index(drop=True)]
    table = pd.concat(parts, axis=1)
    # Lists, because iterating over a column of texts takes ten times as long.
    filled = zip(
        *(table[name].tolist() for name in (columns.TEMPLATE, "noun_phrase", "plural_noun_phrase")), strict=True
    )
    texts = [template.replace(SINGULAR_SLOT, one).replace(PLURAL_SLOT, many) for template, one, many in filled]
    table.insert(0, columns.TEXT, pd.Series(texts, dtype=object))
    return table


_last_prompts: dict[tuple[str, tuple[Template, ...]], pd.DataFrame] = {}


def all_prompts(taxonomy: AnyTaxonomy) -> pd.DataFrame:
    """Return `generate_prompts` of a taxonomy that was loaded, once for all runs of a loop.

    The table of the last taxonomy is kept and must not be changed.
    """
    key = (taxonomy.sha256, taxonomy.templates)
    if key not in _last_prompts:
        _last_prompts.clear()
        _last_prompts[key] = generate_prompts(taxonomy)
    return _last_prompts[key]


def _noun_phrases(taxonomy: Taxonomy) -> Iterator[NounPhrase]:
    """Yield the nouns, the descriptors alone and before each noun, and the fixed and inflected standalone phrases."""
    for noun in taxonomy.nouns:
        yield NounPhrase(
            axis=NO_AXIS,
            noun=noun.singular,
            plural_noun=noun.plural,
            noun_gender=noun.gender,
            noun_phrase=f"{spelled_article(noun.singular)} {noun.singular}",
            plural_noun_phrase=noun.plural,
            noun_phrase_type="noun",
        )
    for term in taxonomy.descriptors:
        alone = NounPhrase(
            axis=term.axis,
            bucket=term.bucket,
            descriptor=term.descriptor,
            descriptor_gender=term.gender or NONE,
            descriptor_preference=term.preference or NO_PREFERENCE,
            noun_phrase=term.descriptor,
            plural_noun_phrase=term.descriptor,
            noun_phrase_type="descriptor",
        )
        yield alone
        article = term.article or spelled_article(term.descriptor)
        for noun in taxonomy.nouns:
            if term.gender in (None, noun.gender):
                yield alone._replace(
                    noun=noun.singular,
                    plural_noun=noun.plural,
                    noun_gender=noun.gender,
                    noun_phrase=f"{article} {term.descriptor} {noun.singular}",
                    plural_noun_phrase=f"{term.descriptor} {noun.plural}",
                    noun_phrase_type="descriptor_noun",
                )
    for entry in taxonomy.standalone:
        plural = entry.plural_noun_phrase or entry.noun_phrase
        fixed = NounPhrase(
            axis=entry.axis,
            descriptor=_fill_pattern(entry.noun_phrase, "", ""),
            descriptor_preference=entry.preference or NO_PREFERENCE,
            noun_gender="neutral",
            noun_phrase=entry.noun_phrase,
            plural_noun_phrase=plural,
            noun_phrase_type="fixed_phrase",
        )
        if "{noun}" not in entry.noun_phrase:
            yield fixed
            continue
        for noun in taxonomy.nouns:
            yield fixed._replace(
                noun=noun.singular,
                plural_noun=noun.plural,
                noun_gender=noun.gender,
                noun_phrase=_fill_pattern(entry.noun_phrase, spelled_article(noun.singular), noun.singular),
                plural_noun_phrase=_fill_pattern(plural, "", noun.plural),
                noun_phrase_type="noun_descriptor",
            )


def spelled_article(word: str) -> str:
    """Return the article of a word by the upstream rule, which ignores the sound: "an" if it begins with aeiou.

    All other words have "a"; "European" has "an".
    """
    return "an" if word[0].lower() in "aeiou" else "a"


def _fill_pattern(pattern: str, article: str, noun: str) -> str:
    """Return a pattern of a standalone noun phrase with an article and a noun, each of which may be ""."""
    return pattern.replace("{article}", article).replace("{noun}", noun).lstrip()


def _parse_json(file: tuple[str, str], kind: type) -> Any:
    """Return the content of a JSON file, its path and text, checked to be of a type; InputError if a key is twice."""
    path, text = file
    try:
        content = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not readable as JSON in UTF-8 ({error}); correct it.") from None
    return checked(kind, content, path)
