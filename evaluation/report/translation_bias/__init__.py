"""The report on translations."""
