"""Tokens of the words by which the prompts of people differ."""

import re
from collections.abc import Collection, Sequence

from transformers import PreTrainedTokenizerBase


def own_word_ids(tokenizer: PreTrainedTokenizerBase, contexts: Sequence[Collection[int]]) -> list[int]:
    """Return the ids of the tokens in which contexts differ, and of their other spellings, sorted.

    These are the words by which people are named. Other spellings have another case or no blank before the word, and
    are tokens themselves.
    """
    sets = [set(ids) for ids in contexts]
    differing = set.union(*sets) - set.intersection(*sets)
    found = set(differing)
    for token in differing:
        word = str(tokenizer.decode([token])).strip()
        for spelling in (word, word.lower(), word.capitalize()):
            for text in (spelling, f" {spelling}"):
                ids = tokenizer(text, add_special_tokens=False)["input_ids"]
                if len(ids) == 1:
                    found.update(ids)
    return sorted(found - set(tokenizer.all_special_ids))


def differing_words(texts: Sequence[str]) -> set[str]:
    """Return the words, in lower case, that stand in some of the texts and not in all of them.

    >>> sorted(differing_words(["I'm a Deaf man.", "I'm a blind man."]))
    ['blind', 'deaf']
    """
    words = [set(re.findall(r"\w+", text.lower())) for text in texts]
    return set.union(*words) - set.intersection(*words)
