"""The scores of small comparisons, with digits that can be checked by hand."""

import math

import pytest

from tests.named_scores import named_score

POOLED = "fgb_pooled_corrected"


def score(name, value, interval=None, p_value=None, reason=None, ideal=0.0, caution=None, **group):
    """Return a score by its `BiasScore.name`."""
    bounds = (-math.inf, math.inf)
    return named_score(name, value, ideal, bounds, 1200, interval, p_value, 0, group, reason, caution=caution)


@pytest.fixture
def tuned():
    """Scores before, after and of the comparison: pooled FGB* falls from 9.47 to 1.76 ×10⁻³, HATE rises."""
    before = [
        score("fgb", 0.19687),
        score(POOLED, 0.009472, (0.008974, 0.009966), 0.0005),
        score("scgb_pooled_corrected", 0.00757, (0.007, 0.008), cluster="CARE"),
        score("scgb_pooled_corrected", 0.00008, (-0.0001, 0.00027), cluster="HATE"),
        score("perplexity", 2.694, ideal=1.0),
        score("parroting", 0.0031),
    ]
    after = [
        score("fgb", 0.18941),
        score(POOLED, 0.001764, (0.001452, 0.002071), 0.0115),
        score("scgb_pooled_corrected", 0.00737, (0.0068, 0.0079), cluster="CARE"),
        score("scgb_pooled_corrected", 0.00066, (0.0005, 0.0008), cluster="HATE"),
        score("perplexity", 2.721, ideal=1.0),
        score("parroting", 0.0029),
    ]
    changes = [
        score(f"{POOLED}_difference", -0.007708, (-0.008271, -0.007149), 0.00002),
        score(f"{POOLED}_reduction", 0.8138, (0.7764, 0.8492), ideal=1.0),
        score("scgb_pooled_corrected_difference", -0.0002, (-0.0009, 0.0005), 0.58, cluster="CARE"),
        score("scgb_pooled_corrected_difference", 0.00058, (0.00041, 0.00074), 0.0003, cluster="HATE"),
    ]
    return [before, after, changes]
