"""A testbed of human sentences: comments that people wrote, given as answers with a planted, exactly known bias."""
