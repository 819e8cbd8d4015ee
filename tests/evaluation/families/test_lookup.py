"""Families of metrics are found by their names."""

import pytest

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError


def test_an_unknown_family_is_named_with_the_one_likely_meant():
    with pytest.raises(InputError, match="metrics: 'likelihoodbias' is unknown; did you mean 'likelihood_bias'"):
        families.settings_of("likelihoodbias")


def test_those_with_a_comparison_can_be_compared():
    assert families.comparable("likelihood_bias") and not families.comparable("offensiveness")
    assert not families.comparable("no_such_family")
