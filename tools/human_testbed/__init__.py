"""A testbed of human sentences: a dialogue model that answers with human comments and a planted, exactly known bias."""
