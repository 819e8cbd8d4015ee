"""How much the prediction of a response's first tokens depends on who asks, in nats.

The predictions p_d of D people are compared with their arithmetic mean M: D_d = KL(p_d ‖ M). D_d is between 0 and ln D.
Its mean over people is the mutual information of person and token, the generalised Jensen–Shannon divergence (Lin 1991,
"Divergence measures based on the Shannon entropy", §IV).

For k tokens, an opening y is drawn from M, equally many from each person. Then D_d is the sum over the tokens j of the
mean over openings of w_d(y_<j) · KL(p_d(·|y_<j) ‖ M(·|y_<j)). The weight w_d = p_d(y_<j) / M(y_<j) says how likely the
opening is for the person, and M(·|y_<j) is the mean weighted by p_d(y_<j). Without the weights, or with greedy
openings, the estimate is biased (Owen and Zhou 2000, "Safe and effective importance sampling").
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow to import
    import torch


def people_divergence(
    log_p: "torch.Tensor", openings: "torch.Tensor", is_token: "torch.Tensor | None" = None
) -> "torch.Tensor":
    """Return each person's divergence from the mean over people along each opening, in nats, (people, openings).

    The mean over openings estimates D_d, and is exact for openings of one token. The mean over people is the mutual
    information of person and next token given the opening so far, summed over tokens.

    Args:
        log_p: log-probabilities that each person's prediction gives to the next token, (people, openings, k,
            vocabulary).
        openings: the tokens of the openings, (openings, k). The last one has no influence.
        is_token: whether an opening has a token at the position, bool (openings, k); later positions are left out.
            None: all openings have k tokens.

    In the example, two of three tokens are certain for one person each: the divergence is ln 2, its largest value.

    >>> import torch
    >>> log_p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).log()[:, None, None]
    >>> people_divergence(log_p, torch.zeros(1, 1, dtype=torch.long)).flatten().tolist()
    [0.6931471824645996, 0.6931471824645996]
    """
    weights, terms = divergence_terms(log_p, openings, is_token)
    return (weights * terms.sum(-1)).sum(-1)


def divergence_terms(
    log_p: "torch.Tensor", openings: "torch.Tensor", is_token: "torch.Tensor | None"
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the weights of each person's divergences, (people, openings, k), and their terms for all tokens.

    The divergence is the sum over tokens of weights times terms, (people, openings, k, vocabulary). The arguments are
    those of `people_divergence`.
    """
    n_people = len(log_p)
    tokens = openings.clamp(min=0)[None, :, :, None].expand(n_people, -1, -1, 1)
    log_p_of_token = log_p.gather(-1, tokens).squeeze(-1)
    before = log_p_of_token.cumsum(-1).roll(1, dims=-1)  # log p_d(y_<j)
    before[..., 0] = 0.0
    log_share = before.log_softmax(0)  # the probability of each person, given the opening so far
    log_mean = (log_p + log_share[..., None]).logsumexp(0)  # log M(·|y_<j)
    terms = (log_p.exp() * (log_p - log_mean)).masked_fill(log_p.isneginf(), 0.0)
    weights = n_people * log_share.exp()
    if is_token is not None:
        weights = weights.masked_fill(~is_token, 0.0)
    return weights, terms


def divergence_bounds(log_p: "torch.Tensor", *, is_complete: bool) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Return the lower and upper bounds of D_d for one token, in nats, (people,), and the terms of the known tokens.

    C are the tokens whose probabilities are known for everybody, and r_d = 1 − p_d(C). The lower bound is the
    divergence of {C, rest} (data processing: Cover and Thomas 2006, "Elements of information theory", §2.8). The upper
    bound is Σ_C p_d ln(p_d / M) + r_d ln D, since M ≥ p_d / D for each other token. The terms of C are
    (people, tokens).

    Args:
        log_p: log-probabilities of the tokens in C, (people, tokens).
        is_complete: whether C has all tokens; both bounds are then D_d.

    In the example, the rest has the probabilities 0.5 and 0.1, with the mean 0.3.

    >>> import torch
    >>> lower, upper, _ = divergence_bounds(torch.tensor([[0.5], [0.9]]).log(), is_complete=False)
    >>> round(float(lower[0]), 4), round(float(upper[0]), 4)  # 0.5 ln(0.5/0.7) + 0.5 ln(0.5/0.3), or + 0.5 ln 2
    (0.0872, 0.1783)
    """
    n_people = len(log_p)
    log_mean = log_p.logsumexp(0) - math.log(n_people)
    terms = (log_p.exp() * (log_p - log_mean)).nan_to_num(0.0)
    known = terms.sum(1)
    if is_complete:
        return known, known, terms
    rest = (1 - log_p.exp().sum(1)).clamp(min=0.0)
    mean = rest.mean().clamp(min=1e-300)
    lower = known + rest.xlogy(rest / mean)
    return lower, known + rest * math.log(n_people), terms
