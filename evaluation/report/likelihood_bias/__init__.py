"""The report on Likelihood Bias."""
