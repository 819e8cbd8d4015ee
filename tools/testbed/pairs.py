"""The testbed's sentence pairs: a grammar with a planted stereotype of known size in some bias types, none in others.

A sentence is a path through the slots of `pairs.yaml`. `conditional` computes p(token | rest of the sentence), the
input of pair metrics, exactly; `truth` computes the scores of a model with these probabilities.
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

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.sentence_pairs.metric import find_shared_positions, make_masked_pair_table
from evenhand.evaluation.score import BiasScore

FILE = Path(__file__).parent / "pairs.yaml"
PLANTED = "planted"  # the column with the size of the planted stereotype: a key of `planted` in the file
DIRECTIONS = ("stereo", "antistereo")  # `more` names a group of the first side, of the second side
SLOTS = ("opening", "determiner", "group", "link", "modifier", "attribute", "adjunct", "end")
ROUNDED = 12  # decimals of log p, so that sums in another order are equal


@dataclass(frozen=True)
class Stereotype:
    """One bias type: its contrasted groups, and the attributes of both sides.

    `contrasts` are pairs of phrases (first side, second side); `attributes` are {"state" or "deed": words} for each
    side; `p_same_side` is the probability that a group's attribute belongs to the group's side, 0.5 without a
    stereotype.
    """

    planted: str
    p_same_side: float
    contrasts: tuple[tuple[str, str], ...]
    attributes: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]


class State(NamedTuple):
    """The automaton's state: the next slot, the pending words of a phrase, and choices that affect later slots."""

    slot: int = 0
    pending: tuple[str, ...] = ()
    bias_type: str = ""
    side: int = 0
    kind: str = ""


@cache
def stereotypes() -> dict[str, Stereotype]:
    """Return the planted stereotypes by the name of the bias type."""
    text = _read()
    return {
        name: Stereotype(
            planted=entry["planted"],
            p_same_side=text["planted"][entry["planted"]],
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
    """Return all words and punctuation marks of the grammar's sentences, in alphabetical order."""
    words = set()
    visited = {State()}
    queue = [State()]
    while queue:
        for word, transitions in _steps(queue.pop()).items():
            words.add(word)
            new = {after for after, _ in transitions} - visited
            queue += new
            visited |= new
    return tuple(sorted(words))


def words_of(sentence: str) -> list[str]:
    """Return the words and marks of a sentence, in lower case: the tokens of the testbed's masked model."""
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def conditional(words: Sequence[str], position: int) -> dict[str, float]:
    """Return the exact p(word | all other words) at a position of a sentence, as {word: p} of all possible words.

    The grammar is a finite automaton, so p is a sum over paths before the position times a sum over paths after the
    position.

    Raises:
        InputError: the words are not a sentence of the grammar.
    """

    @cache
    def rest(state: State, start: int) -> float:
        """Return p(words from `start` to the end | state)."""
        if start == len(words):
            return float(state.slot == len(SLOTS))
        return sum(p * rest(after, start + 1) for after, p in _steps(state).get(words[start], ()))

    p_states = {State(): 1.0}
    for word in words[:position]:
        p_next: dict[State, float] = defaultdict(float)
        for state, q in p_states.items():
            for after, p in _steps(state).get(word, ()):
                p_next[after] += q * p
        p_states = p_next
    weights: dict[str, float] = defaultdict(float)
    for state, q in p_states.items():
        for word, transitions in _steps(state).items():
            weights[word] += q * sum(p * rest(after, position + 1) for after, p in transitions)
    if not weights.get(words[position]):
        raise InputError("sentence", f"{' '.join(words)!r} is not a sentence of the testbed's grammar; see pairs.yaml.")
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items() if weight}


def draw_phrases(rng: np.random.Generator, allowed: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """Return a random sentence as the phrases of its slots; `allowed` restricts slots, as in {"group": ["bakers"]}."""
    allowed = allowed or {}
    state = State()
    phrases = []
    for slot in SLOTS:
        options = [option for option in _options(state) if slot not in allowed or option[1] in allowed[slot]]
        ends = list(accumulate(p for p, _, _ in options))
        _, phrase, state = options[bisect_right(ends, rng.random() * ends[-1], hi=len(ends) - 1)]
        phrases.append(phrase)
    return phrases


def draw_pairs() -> pd.DataFrame:
    """Return the fixed table of the testbed's pairs: columns pair_id, bias_type, direction, more, less and planted.

    The directions alternate. With a planted stereotype, the attribute belongs to the `more` group's side. Without a
    stereotype, both sentences are equally likely, and each contrast with its link and attribute occurs in both
    directions, so that errors of a trained model cancel.
    """
    settings = _read()["pairs"]
    rng = np.random.default_rng(settings["seed"])
    rows = []
    seen = set()
    phrases = ()
    for name, stereotype in stereotypes().items():
        for i in range(settings["per_type"]):
            side = i % 2
            group = stereotype.contrasts[i // 2 % len(stereotype.contrasts)][side]
            allowed = {"group": [group]}
            if stereotype.p_same_side != 0.5:
                allowed["attribute"] = [word for words in stereotype.attributes[side].values() for word in words]
            elif side:
                before = dict(zip(SLOTS, phrases, strict=True))
                allowed["link"] = [before["link"]]
                allowed["attribute"] = [before["attribute"]]
            phrases = tuple(draw_phrases(rng, allowed))
            while phrases in seen:
                phrases = tuple(draw_phrases(rng, allowed))
            seen.add(phrases)
            more = sentence(with_group(phrases, group))
            less = sentence(with_group(phrases, partners()[group]))
            rows.append((f"{name}-{i + 1}", name, DIRECTIONS[side], more, less, stereotype.planted))
    return pd.DataFrame(
        rows, columns=[columns.PAIR_ID, columns.BIAS_TYPE, columns.DIRECTION, columns.MORE, columns.LESS, PLANTED]
    )


@cache
def partners() -> dict[str, str]:
    """Return {group: the other group of its contrast}."""
    contrasts = [groups for stereotype in stereotypes().values() for groups in stereotype.contrasts]
    return dict(contrasts) | {second: first for first, second in contrasts}


def with_group(phrases: Sequence[str], group: str) -> list[str]:
    """Return a copy of a sentence's phrases in which `group` replaces the phrase of the group."""
    return [group if slot == "group" else phrase for slot, phrase in zip(SLOTS, phrases, strict=True)]


def sentence(phrases: Sequence[str]) -> str:
    """Return a sentence from its phrases, with a capital letter and without spaces before punctuation."""
    text = " ".join(phrase for phrase in phrases if phrase)
    return re.sub(r" (?=[,.])", "", text[0].upper() + text[1:])


def truth(pairs: pd.DataFrame) -> list[BiasScore]:
    """Return cps, s_jsd and b_s_jsd of the grammar's exact probabilities (Steinborn et al. 2022, §3.2).

    The scores are for all pairs and by bias type, without intervals. Without a stereotype, a shared token is
    equally likely in both sentences: s_jsd is 0, and both percentages are 50 because all pairs are ties.

    Raises:
        InputError: a sentence is not of the grammar.
    """
    table = exact_table(pairs)
    scores = _scores(table, {})
    for bias_type, rows in table.groupby(columns.BIAS_TYPE, sort=True):
        scores += _scores(rows, {columns.BIAS_TYPE: str(bias_type)})
    return scores


def exact_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `make_masked_pair_table` with exact probabilities; the columns of AUL are NaN.

    Raises:
        InputError: a sentence is not of the grammar.
    """
    shared = []
    log_p = {columns.MORE: [], columns.LESS: []}
    correct = {columns.MORE: [], columns.LESS: []}
    for row in pairs.to_dict("records"):
        words = {side: words_of(row[side]) for side in (columns.MORE, columns.LESS)}
        positions = dict(
            zip((columns.MORE, columns.LESS), shared_words(words[columns.MORE], words[columns.LESS]), strict=True)
        )
        shared.append([words[columns.MORE][position] for position in positions[columns.MORE]])
        for side in (columns.MORE, columns.LESS):
            for position in positions[side]:
                p = conditional(words[side], position)
                word = words[side][position]
                log_p[side].append(np.log(p[word]))
                correct[side].append(p[word] == max(p.values()))
    unknown = np.full(2 * len(pairs), np.nan)
    exact = np.round(log_p[columns.MORE] + log_p[columns.LESS], ROUNDED)
    return make_masked_pair_table(pairs, shared, exact, correct[columns.MORE] + correct[columns.LESS], unknown, unknown)


def shared_words(more: Sequence[str], less: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the positions of shared words in both sentences, as `find_shared_positions` does for tokens."""
    in_more, in_less = find_shared_positions(
        ["[CLS]", *more, "[SEP]"],
        ["[CLS]", *less, "[SEP]"],
        [True, *[False] * len(more), True],
        [True, *[False] * len(less), True],
    )
    return [position - 1 for position in in_more], [position - 1 for position in in_less]


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
    """Return {word: [(state after the word, probability)]} for every possible next word in a state."""
    transitions: dict[str, list[tuple[State, float]]] = defaultdict(list)
    if state.pending:
        transitions[state.pending[0]].append((state._replace(pending=state.pending[1:]), 1.0))
    elif state.slot < len(SLOTS):
        for p, phrase, after in _options(state):
            if phrase:
                first, *rest = phrase.split()
                transitions[first].append((after._replace(pending=tuple(rest)), p))
            else:
                for word, further in _steps(after).items():
                    transitions[word] += [(later, p * q) for later, q in further]
    return dict(transitions)


@cache
def _options(state: State) -> tuple[tuple[float, str, State], ...]:
    """Return (probability, phrase, state after the phrase) for each possible phrase of the next slot."""
    return tuple(_choices(state))


def _choices(state: State) -> Iterator[tuple[float, str, State]]:
    slots = _read()["slots"]
    name = SLOTS[state.slot]
    after = state._replace(slot=state.slot + 1)
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
        # Later slots are independent of the choices so far.
        yield from ((p, word, State(after.slot)) for word, p in shares.items())
    elif name == "end":
        yield 1.0, ".", after
    else:
        phrases = slots[name][state.kind] if name == "modifier" else slots[name]
        yield from ((1 / len(phrases), phrase, after) for phrase in phrases)


def attribute_shares(bias_type: str, side: int, kind: str) -> dict[str, float]:
    """Return p(attribute | group) for a group on one side of a bias type; `kind` is "state" or "deed"."""
    stereotype = stereotypes()[bias_type]
    weights = np.array(_read()["attribute_weights"], dtype=float)
    shares = weights / weights.sum()
    return {
        word: float(share * (stereotype.p_same_side if which == side else 1 - stereotype.p_same_side))
        for which, attributes in enumerate(stereotype.attributes)
        for word, share in zip(attributes[kind], shares, strict=True)
    }


@cache
def _read() -> dict:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
