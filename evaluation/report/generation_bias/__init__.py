"""The report on generation bias."""
