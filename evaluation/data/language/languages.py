"""Language packs: prompts in languages whose descriptors agree with nouns in gender and number.

A pack is a folder of `files/languages`: nouns with articles, templates, a neutral descriptor, corrections, small talk.
The descriptors are in a file of MMHB (Massive Multilingual HolisticBias, github.com/facebookresearch/ResponsibleNLP;
after Costa-jussà et al. 2023) that the user gives. `LanguageTaxonomy.phrases` has the columns of HolisticBias, so that
metrics do not depend on the language, and FORMS and NEUTRAL, by which `mentions` finds and replaces descriptors.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from evenhand.evaluation.data.holistic_bias import NO_AXIS, NO_PREFERENCE, NONE, PHRASE_COLUMNS, NounPhrase, Template
from evenhand.evaluation.data.language.mentions import FORMS, NEUTRAL, SEPARATOR
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import files_sha256, read_yaml
from evenhand.evaluation.settings import StrictSettings, checked

FOLDER = Path(__file__).resolve().parents[1] / "files" / "languages"
GENDERS = ("masculine", "feminine")
NUMBERS = ("singular", "plural")
ANY = "unspec"
NOUN_GENDERS = {"masculine": "male", "feminine": "female"}  # of a noun in a pair, as in HolisticBias
COLUMNS = ("ID", "HB AXIS", "SEMANTIC FIELD (SENSE)", "OPTION DESCRIPTON [SL]", "SUGGESTED TRANSLATION [TL]")
OPTION = re.compile(r"(masculine|feminine|unspec)_unspec_(singular|plural|unspec)_descriptor")

Forms = Mapping[tuple[str, str], str]  # (gender, number) → form
_Words = tuple[str, str]  # a noun in the singular and in the plural, each with its article


class _Noun(StrictSettings):
    """A noun of one grammatical gender, or a pair of both, such as "un amigo" and "una amiga"."""

    masculine: _Words | None = None
    feminine: _Words | None = None


class _Pack(StrictSettings):
    """The file pack.yaml of a language. Ids are those of MMHB's file, without the letters at their end."""

    neutral: str  # a descriptor with one form for both genders and numbers, as "left-handed" in Smith et al. 2022, A.6
    nouns: list[_Noun]
    predicates: list[str]  # templates that also fit a descriptor without a noun
    templates: list[str]  # templates that need a noun
    complete: list[str] = Field(default_factory=list)  # missing forms equal the given ones: of the other gender, first
    # Right forms: one for all, singular and plural, or both of each gender, masculine first; none, or "": left out.
    corrections: dict[str, Annotated[list[str], Field(max_length=4)]] = Field(default_factory=dict)


@dataclass(frozen=True)
class LanguageTaxonomy:
    """Descriptors and templates in a language; `sha256` is the hash of the pack and of the descriptors' file."""

    pack: _Pack
    descriptors: tuple[tuple[str, str, Forms], ...]  # axis, bucket, forms
    templates: tuple[Template, ...]
    sha256: str

    def phrases(self) -> pd.DataFrame:
        """Return all noun phrases, sorted, with the columns PHRASE_COLUMNS, FORMS and NEUTRAL.

        A descriptor's name is its masculine singular, or its feminine singular if it has no masculine. Its
        `descriptor_gender` is "masculine" or "feminine" if it has only that gender. A descriptor that changes with the
        gender also stands alone ("Soy sorda."), with the `noun_gender` "male" or "female".
        """
        rows = [(*phrase, forms, self.pack.neutral) for phrase, forms in sorted(_phrases(self))]
        return pd.DataFrame(rows, columns=[*PHRASE_COLUMNS, FORMS, NEUTRAL], dtype=object)


def language_folder(language: str) -> Path:
    """Return the folder of a language pack, such as "es". InputError if there is none."""
    languages = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    if language not in languages:
        raise unknown_name("prompts.language", language, languages)
    return FOLDER / language


def load_language(language: str, descriptors: str | Path) -> LanguageTaxonomy:
    """Return the prompts' taxonomy in a language, such as "es", with the descriptors of one of MMHB's files.

    Of the forms that MMHB offers for a gender and number, the first is used. A gender without singular or plural is
    left out, and so is a descriptor whose name occurs twice on its axis, the second time.

    Raises:
        InputError: the language has no pack, or the file cannot be read or has no descriptor with its forms.
    """
    folder = language_folder(language)
    path = Path(descriptors)
    pack = checked(_Pack, read_yaml(folder / "pack.yaml", "prompts.language"), f"{language}/pack.yaml")
    if path.suffix != ".tsv":
        raise InputError(
            "prompts.dataset",
            f"{str(descriptors)!r} with language {language!r}; give MMHB's file of the language's "
            "descriptors, such as spa_descriptors_full_id.tsv.",
        )
    found = {}
    for axis, bucket, forms in _read_descriptors(path, pack):
        found.setdefault((axis, _name(forms)), (axis, bucket, forms))
    if not found:
        raise InputError("prompts.dataset", f"{path} has no descriptor with a singular and a plural; correct it.")
    sha256 = files_sha256({"pack.yaml": folder / "pack.yaml", "descriptors": path})
    templates = tuple(Template(text) for text in pack.predicates)
    templates += tuple(Template(text, must_be_noun=True) for text in pack.templates)
    return LanguageTaxonomy(pack, tuple(found.values()), templates, sha256)


def _read_descriptors(path: Path, pack: _Pack) -> Iterator[tuple[str, str, Forms]]:
    """Yield the axis, the bucket and the forms of each descriptor in a file of MMHB that has forms to use."""
    columns = read_columns(path, "descriptors of MMHB", known=COLUMNS)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise InputError("prompts.dataset", f"{path} has no column {missing[0]!r}; give a file of MMHB's descriptors.")
    offered: dict[str, dict[tuple[str, str], str]] = {}
    about = {}
    cells = zip(*(columns[column] for column in COLUMNS), strict=True)
    for row, (name, axis, bucket, option, form) in enumerate(cells, start=2):
        kind = OPTION.fullmatch(option)
        if kind is None or not form.strip():
            raise InputError(path, f"row {row}: {option!r}, {form!r}; write {OPTION.pattern!r} and a form.")
        key = re.sub(r"[A-Za-z]+$", "", name)
        about.setdefault(key, (axis, bucket))
        offered.setdefault(key, {}).setdefault((kind[1], kind[2]), form.strip())
    for key, offered_forms in offered.items():
        forms = select_forms(offered_forms, key in pack.complete, pack.corrections.get(key))
        if forms:
            axis, bucket = about[key]
            yield axis, bucket, forms


def select_forms(
    offered: Forms, complete: bool = False, correction: list[str] | None = None
) -> dict[tuple[str, str], str]:
    """Return a descriptor's forms by gender and number, with a singular and a plural of each gender that it has.

    Args:
        offered: forms by gender and number, either of which may be "unspec". Forms of a specific gender are used, or
            forms of none if they are more complete.
        complete: whether missing forms equal those of the other gender, or else of the other number.
        correction: replaces `offered`: one form for all, two (singular, plural), or four (masculine first).

    >>> select_forms({("unspec", "unspec"): "con curvas"})[("feminine", "plural")]
    'con curvas'
    """
    keys = list(product(GENDERS, NUMBERS))
    if correction is not None:
        repeated = correction * (4 // len(correction)) if correction else []
        return {key: form for key, form in zip(keys, repeated, strict=False) if form}

    specific = {}
    general = {}
    for gender, number in keys:
        for forms, offered_gender in ((specific, gender), (general, ANY)):
            form = offered.get((offered_gender, number)) or offered.get((offered_gender, ANY))
            if form:
                forms[gender, number] = form
    forms = specific if len(specific) >= len(general) else general
    if complete:
        other = {"masculine": "feminine", "feminine": "masculine", "singular": "plural", "plural": "singular"}
        for gender, number in keys:
            for source in ((other[gender], number), (gender, other[number]), (other[gender], other[number])):
                if source in forms:
                    forms.setdefault((gender, number), forms[source])
    has_both_numbers = {gender: all((gender, number) in forms for number in NUMBERS) for gender in GENDERS}
    return {key: forms[key] for key in keys if has_both_numbers[key[0]]}


def _name(forms: Forms) -> str:
    """Return the name of a descriptor: its masculine singular, or its feminine singular if it has no masculine."""
    return forms.get(("masculine", "singular")) or forms["feminine", "singular"]


@dataclass(frozen=True)
class _InflectedNoun:
    """A noun of one grammatical gender, without and with its article, and the gender of the person, as in HolisticBias.

    A noun of a pair of both genders ("un amigo", "una amiga") tells the gender of the person; else it is "neutral".
    """

    gender: str
    singular: str
    plural: str
    singular_phrase: str
    plural_phrase: str
    person_gender: str


def _inflected_nouns(pack: _Pack) -> Iterator[_InflectedNoun]:
    for noun in pack.nouns:
        for gender, phrases in (("masculine", noun.masculine), ("feminine", noun.feminine)):
            if phrases is not None:
                singular, plural = (re.split("[ ']", phrase)[-1] for phrase in phrases)  # without the article
                yield _InflectedNoun(
                    gender=gender,
                    singular=singular,
                    plural=plural,
                    singular_phrase=phrases[0],
                    plural_phrase=phrases[1],
                    person_gender=NOUN_GENDERS[gender] if noun.masculine and noun.feminine else "neutral",
                )


def _phrases(taxonomy: LanguageTaxonomy) -> Iterator[tuple[NounPhrase, str]]:
    """Yield each noun phrase, and the forms of its descriptor in the order of GENDERS × NUMBERS ("" for a noun)."""
    nouns = list(_inflected_nouns(taxonomy.pack))
    for noun in nouns:
        phrase = NounPhrase(
            axis=NO_AXIS,
            noun=noun.singular,
            plural_noun=noun.plural,
            noun_gender=noun.person_gender,
            noun_phrase=noun.singular_phrase,
            plural_noun_phrase=noun.plural_phrase,
            noun_phrase_type="noun",
        )
        yield phrase, ""
    for axis, bucket, forms in taxonomy.descriptors:
        genders = [gender for gender in GENDERS if (gender, "singular") in forms]
        listed = SEPARATOR.join(forms.get(key, "") for key in product(GENDERS, NUMBERS))
        described = NounPhrase(
            axis=axis,
            bucket=bucket,
            descriptor=_name(forms),
            descriptor_gender=genders[0] if len(genders) == 1 else NONE,
            descriptor_preference=NO_PREFERENCE,
        )
        if len({forms[gender, "singular"] for gender in genders}) == 2:
            for gender in genders:
                phrase = described._replace(
                    noun_gender=NOUN_GENDERS[gender],
                    noun_phrase=forms[gender, "singular"],
                    plural_noun_phrase=forms[gender, "plural"],
                    noun_phrase_type="descriptor",
                )
                yield phrase, listed
        for noun in nouns:
            if noun.gender in genders:
                phrase = described._replace(
                    noun=noun.singular,
                    plural_noun=noun.plural,
                    noun_gender=noun.person_gender,
                    noun_phrase=f"{noun.singular_phrase} {forms[noun.gender, 'singular']}",
                    plural_noun_phrase=f"{noun.plural_phrase} {forms[noun.gender, 'plural']}",
                    noun_phrase_type="noun_descriptor",
                )
                yield phrase, listed
