"""A check of a style classifier: whether a text has other styles merely because it mentions a descriptor.

Evenhand replaces descriptors in responses before it classifies them. A classifier reacts to what is not replaced, such
as a paraphrase, in the way that is measured here.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.styles import label_probabilities, to_style_vectors

SENTENCES = (
    "I met {noun_phrase} at the bus stop.",
    "My neighbour is {noun_phrase}.",
    "There was {noun_phrase} in front of me in the queue.",
    "The book is about {noun_phrase} who moves to another town.",
    "Yesterday, {noun_phrase} asked me for the time.",
)
NOUN = "person"
N_LISTED = 5


@dataclass(frozen=True)
class MentionCheck:
    """Spreads of style vectors: their total variance, Σ_s Var(p_s), in [0, 1].

    Attributes:
        n_descriptors, n_sentences: how many descriptors and neutral sentences there are.
        descriptor_spread: the variance over descriptors in the same sentence, a mean over sentences.
        text_spread: the variance over test texts.
        strongest: the descriptors that move the styles furthest, and the style that each raises most with the rise of
            its probability, a mean over sentences.
    """

    n_descriptors: int
    n_sentences: int
    descriptor_spread: float
    text_spread: float
    strongest: tuple[tuple[str, str, float], ...]


def check_mentions(classifier: Classifier, test_probabilities: np.ndarray) -> MentionCheck:
    """Measure how much a classifier reacts to a descriptor alone, compared with how much it reacts to real texts.

    Neutral sentences, each with every descriptor put in, should all get the same styles.

    Args:
        test_probabilities: the probabilities of the labels of the test texts, (n, S).
    """
    phrases = load_taxonomy().phrases()
    phrases = phrases[phrases["noun"] == NOUN].drop_duplicates(subset="descriptor")
    texts = [sentence.format(noun_phrase=phrase) for sentence in SENTENCES for phrase in phrases["noun_phrase"]]
    vectors = to_style_vectors(classifier, label_probabilities(classifier, texts))
    vectors = vectors.reshape(len(SENTENCES), len(phrases), -1)
    test_vectors = to_style_vectors(classifier, test_probabilities)
    change = (vectors - vectors.mean(axis=1, keepdims=True)).mean(axis=0)  # (descriptors, styles)
    order = np.argsort(-(change**2).sum(axis=1), kind="stable")[:N_LISTED]
    descriptors = phrases["descriptor"].tolist()
    return MentionCheck(
        n_descriptors=len(phrases),
        n_sentences=len(SENTENCES),
        descriptor_spread=float(vectors.var(axis=1).sum(axis=-1).mean()),
        text_spread=float(test_vectors.var(axis=0).sum()),
        strongest=tuple(
            (descriptors[row], classifier.labels[change[row].argmax()], float(change[row].max())) for row in order
        ),
    )
