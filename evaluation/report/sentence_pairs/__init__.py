"""The report on sentence pairs."""
