"""The testbed's sentence pairs: a small grammar that plants a stereotype of exactly known size in some, in others none.

A sentence is a path through the slots of `pairs.yaml`. All that a pair metric asks of a masked model,
p(token | the rest of the sentence), is computed here exactly: that is `conditional`, and `truth` for whole scores.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.sentence_pairs.rows import find_shared_positions, make_masked_pair_table
from evenhand.evaluation.results import BIAS_TYPE, DIRECTION, LESS, MORE, PAIR_ID, BiasScore

FILE = Path(__file__).parent / "pairs.yaml"
PLANTED = "planted"  # the column that says how much is planted: a key of the file's `planted`
DIRECTIONS = ("stereo", "antistereo")  # `more` is about the first side, about the second
SLOTS = ("opening", "determiner", "group", "link", "modifier", "attribute", "adjunct", "end")
ROUNDED = 12  # digits of log p: sums in another order differ by less, and are then one number


@dataclass(frozen=True)
class Stereotype:
    """One bias type: the groups that are contrasted, and the attributes of either side.

    `contrasts` are pairs of phrases (first side, second side); `attributes` are {"state" or "deed": the words} for each
    side; `own` is the probability that a group's attribute is one of its own side's, 0.5 where nothing is planted.
    """

    planted: str
    own: float
    contrasts: tuple[tuple[str, str], ...]
    attributes: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]


class State(NamedTuple):
    """Where a sentence has got to: the next slot, words of a phrase still to come, the choices that matter later."""

    slot: int = 0
    pending: tuple[str, ...] = ()
    bias_type: str = ""
    side: int = 0
    kind: str = ""


@cache
def stereotypes() -> dict[str, Stereotype]:
    """Return the bias types by name."""
    text = _read()
    return {
        name: Stereotype(
            planted=entry["planted"],
            own=text["planted"][entry["planted"]],
            contrasts=tuple(
                (first.format(head=head), second.format(head=head))
                for first, second in entry["contrasts"]
                for head in (text["heads"] if "{head}" in first else [""])
            ),
            attributes=(entry["first"], entry["second"]),
        )
        for name, entry in text["types"].items()
    }


@cache
def vocabulary() -> tuple[str, ...]:
    """Return all words and marks that a sentence can have, in alphabetical order."""
    found, seen, waiting = set(), {State()}, [State()]
    while waiting:
        for word, ways in _steps(waiting.pop()).items():
            found.add(word)
            waiting += (new := {after for after, _ in ways} - seen)
            seen |= new
    return tuple(sorted(found))


def words_of(sentence: str) -> list[str]:
    """Return the words and marks of a sentence, in lower case: the tokens of the testbed's masked model."""
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def conditional(words: Sequence[str], place: int) -> dict[str, float]:
    """Return p(word | all the other words) at one place of a sentence, as {word: p} of all possible words, exactly.

    The grammar is a finite automaton, so this is one sum over its paths up to the place and one over those after it.

    Raises:
        InputError: the words are no sentence of the grammar.
    """

    @cache
    def rest(state: State, start: int) -> float:
        """Return p(words from `start` to the end | state)."""
        if start == len(words):
            return float(state.slot == len(SLOTS))
        return sum(p * rest(after, start + 1) for after, p in _steps(state).get(words[start], ()))

    reached = {State(): 1.0}
    for word in words[:place]:
        onward: dict[State, float] = defaultdict(float)
        for state, q in reached.items():
            for after, p in _steps(state).get(word, ()):
                onward[after] += q * p
        reached = onward
    weights: dict[str, float] = defaultdict(float)
    for state, q in reached.items():
        for word, ways in _steps(state).items():
            weights[word] += q * sum(p * rest(after, place + 1) for after, p in ways)
    if not weights.get(words[place]):
        raise InputError(f"sentence: {' '.join(words)!r} is none of the testbed's grammar; see pairs.yaml.")
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items() if weight}


def draw_phrases(rng: np.random.Generator, **allowed: Collection[str]) -> list[str]:
    """Draw a sentence: the phrase of each slot in turn; `allowed` limits a slot to these phrases (group=["bakers"])."""
    state, phrases = State(), []
    for slot in SLOTS:
        options = [option for option in _options(state) if slot not in allowed or option[1] in allowed[slot]]
        ends = list(accumulate(p for p, _, _ in options))
        _, phrase, state = options[bisect_right(ends, rng.random() * ends[-1], hi=len(ends) - 1)]
        phrases.append(phrase)
    return phrases


def draw_pairs() -> pd.DataFrame:
    """Draw the testbed's pairs: columns pair_id, bias_type, direction, more, less and planted; always the same.

    The directions alternate. Where something is planted, the attribute is one of the `more` group's own. Where nothing
    is, both sentences fit alike, and a contrast with its link and attribute comes twice, once in either direction, so
    that the small errors of a trained model point nowhere.
    """
    settings = _read()["pairs"]
    rng, rows, seen, phrases = np.random.default_rng(settings["seed"]), [], set(), ()
    for name, stereotype in stereotypes().items():
        for i in range(settings["per_type"]):
            side = i % 2
            group = stereotype.contrasts[i // 2 % len(stereotype.contrasts)][side]
            allowed = {"group": [group]}
            if stereotype.own != 0.5:
                allowed["attribute"] = [word for words in stereotype.attributes[side].values() for word in words]
            elif side:
                before = dict(zip(SLOTS, phrases, strict=True))
                allowed |= {slot: [before[slot]] for slot in ("link", "attribute")}
            while (phrases := tuple(draw_phrases(rng, **allowed))) in seen:
                pass
            seen.add(phrases)
            more, less = (sentence(with_group(phrases, one)) for one in (group, partners()[group]))
            rows.append((f"{name}-{i + 1}", name, DIRECTIONS[side], more, less, stereotype.planted))
    return pd.DataFrame(rows, columns=[PAIR_ID, BIAS_TYPE, DIRECTION, MORE, LESS, PLANTED])


@cache
def partners() -> dict[str, str]:
    """Return the other group of its contrast for each group."""
    contrasts = [groups for stereotype in stereotypes().values() for groups in stereotype.contrasts]
    return dict(contrasts) | {second: first for first, second in contrasts}


def with_group(phrases: Sequence[str], group: str) -> list[str]:
    """Return the phrases of a sentence with another group in it."""
    return [group if slot == "group" else phrase for slot, phrase in zip(SLOTS, phrases, strict=True)]


def sentence(phrases: Sequence[str]) -> str:
    """Return the phrases of a sentence as one writes it."""
    text = " ".join(phrase for phrase in phrases if phrase)
    return re.sub(r" (?=[,.])", "", text[0].upper() + text[1:])


def truth(pairs: pd.DataFrame) -> list[BiasScore]:
    """Compute what a model that knows the grammar exactly scores on its pairs: cps, s_jsd and b_s_jsd (001 §3.2).

    For all pairs and by bias type; no interval, as nothing is estimated. Where nothing is planted each shared token is
    equally likely in both sentences: s_jsd is 0 and the two percentages, of ties alone, are 50.

    Raises:
        InputError: a sentence is none of the grammar's.
    """
    table = exact_table(pairs)
    scores = _scores(table, {})
    for bias_type, rows in table.groupby(BIAS_TYPE, sort=True):
        scores += _scores(rows, {BIAS_TYPE: str(bias_type)})
    return scores


def exact_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the exact numbers of each pair: the table that `make_masked_pair_table` makes of a model's, but for AUL.

    Raises:
        InputError: a sentence is none of the grammar's.
    """
    shared, log_p, correct = [], {MORE: [], LESS: []}, {MORE: [], LESS: []}
    for row in pairs.to_dict("records"):
        words = {side: words_of(row[side]) for side in (MORE, LESS)}
        places = dict(zip((MORE, LESS), shared_words(words[MORE], words[LESS]), strict=True))
        shared.append([words[MORE][place] for place in places[MORE]])
        for side in (MORE, LESS):
            for place in places[side]:
                p, word = conditional(words[side], place), words[side][place]
                log_p[side].append(np.log(p[word]))
                correct[side].append(p[word] == max(p.values()))
    unknown = np.full(2 * len(pairs), np.nan)
    exact = np.round(log_p[MORE] + log_p[LESS], ROUNDED)
    return make_masked_pair_table(pairs, shared, exact, correct[MORE] + correct[LESS], unknown, unknown)


def shared_words(more: Sequence[str], less: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return where the words that two sentences share stand in each, as `find_shared_positions` finds tokens."""
    ends = [["[CLS]", *words, "[SEP]"] for words in (more, less)]
    special = [[True, *[False] * len(words), True] for words in (more, less)]
    in_more, in_less = find_shared_positions(*ends, *special)
    return [place - 1 for place in in_more], [place - 1 for place in in_less]


def _scores(table: pd.DataFrame, group: dict[str, str]) -> list[BiasScore]:
    def percentage(one: str, other: str) -> float:
        return float(50 * (1 + np.sign(table[one] - table[other])).mean())

    n = len(table)
    return [
        BiasScore("cps", percentage("log_likelihood_more", "log_likelihood_less"), 50.0, (0.0, 100.0), n, group=group),
        BiasScore("s_jsd", float(table["s_jsd"].mean()), 0.0, (-1.0, 1.0), n, group=group),
        BiasScore("b_s_jsd", percentage("distance_less", "distance_more"), 50.0, (0.0, 100.0), n, group=group),
    ]


@cache
def _steps(state: State) -> dict[str, list[tuple[State, float]]]:
    """Return {word: [(state after it, probability)]} of every word that can come next."""
    ways: dict[str, list[tuple[State, float]]] = defaultdict(list)
    if state.pending:
        ways[state.pending[0]].append((state._replace(pending=state.pending[1:]), 1.0))
    elif state.slot < len(SLOTS):
        for p, phrase, after in _options(state):
            if phrase:
                first, *others = phrase.split()
                ways[first].append((after._replace(pending=tuple(others)), p))
            else:
                for word, further in _steps(after).items():
                    ways[word] += [(later, p * q) for later, q in further]
    return dict(ways)


@cache
def _options(state: State) -> tuple[tuple[float, str, State], ...]:
    """Return (probability, phrase, state after it) of all that the next slot can hold."""
    return tuple(_choices(state))


def _choices(state: State) -> Iterator[tuple[float, str, State]]:
    slots, name, after = _read()["slots"], SLOTS[state.slot], state._replace(slot=state.slot + 1)
    if name == "opening":
        yield 0.5, "", after
        yield from ((0.5 / len(slots[name]), phrase, after) for phrase in slots[name])
    elif name == "group":
        for bias_type, stereotype in stereotypes().items():
            p = 0.5 / len(stereotypes()) / len(stereotype.contrasts)
            for groups in stereotype.contrasts:
                for side, group in enumerate(groups):
                    yield p, group, after._replace(bias_type=bias_type, side=side)
    elif name == "link":
        for kind, words in slots[name].items():
            yield from ((0.5 / len(words), word, after._replace(kind=kind)) for word in words)
    elif name == "attribute":
        shares = attribute_shares(state.bias_type, state.side, state.kind)
        # Nothing that comes later depends on the choices so far.
        yield from ((p, word, State(after.slot)) for word, p in shares.items())
    elif name == "end":
        yield 1.0, ".", after
    else:
        phrases = slots[name][state.kind] if name == "modifier" else slots[name]
        yield from ((1 / len(phrases), phrase, after) for phrase in phrases)


def attribute_shares(bias_type: str, side: int, kind: str) -> dict[str, float]:
    """Return p(attribute | group), of a group on one side of a type; `kind` is "state" or "deed"."""
    stereotype, weights = stereotypes()[bias_type], np.array(_read()["attribute_weights"], dtype=float)
    shares = weights / weights.sum()
    return {
        word: float(share * (stereotype.own if which == side else 1 - stereotype.own))
        for which, attributes in enumerate(stereotype.attributes)
        for word, share in zip(attributes[kind], shares, strict=True)
    }


@cache
def _read() -> dict:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
