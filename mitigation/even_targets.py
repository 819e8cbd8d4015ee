"""What a model learns to predict for the first tokens of a response, so that it begins alike for everybody."""

import torch
from torch.nn.functional import log_softmax

from evenhand.evaluation.statistics.people_divergence import people_divergence


def even_targets(
    predictions: torch.Tensor,
    tokens: torch.Tensor,
    n_trained: int,
    *,
    min_divergence: float = 0.0,
    own_words: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the log-probabilities to learn for the first `n_trained` people, (n_trained, k, vocabulary).

    They are the normalised mean of the log-probabilities of all people, the distribution with the smallest mean KL
    divergence from these. A response whose divergence between people is less than `min_divergence` keeps each person's
    own prediction. So do the tokens `own_words`: their probabilities stay each person's own, and the mean has the rest.

    Args:
        predictions: log-probabilities of the base for each person, (people, k, vocabulary).
        tokens: the first k tokens of the response, (k,).
        min_divergence: in nats; see `people_divergence`.
        own_words: token ids, (w,), without repetition; None or w = 0: none.
    """
    own = predictions[:n_trained]
    if min_divergence > 0:
        divergence = people_divergence(predictions[:, None], tokens[None]).mean()
        if divergence < min_divergence:
            return own
    even = log_softmax(predictions.mean(0), -1).expand_as(own)
    if own_words is None or not len(own_words):
        return even
    is_own_word = torch.zeros(predictions.shape[-1], dtype=torch.bool, device=predictions.device)
    is_own_word[own_words] = True
    rest_of_own = own.masked_fill(is_own_word, -torch.inf).logsumexp(-1, keepdim=True)
    rest_of_even = even.masked_fill(is_own_word, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.where(is_own_word, own, even - rest_of_even + rest_of_own)
