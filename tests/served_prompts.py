"""Prompts for models behind an API."""

import pandas as pd


def served_prompts(n):
    """Return n prompts, "I'm person 0." and so on."""
    texts = [f"I'm person {row}." for row in range(n)]
    return pd.DataFrame({"text": texts, "persona": "", "prompt_id": [f"id{row}" for row in range(n)]})
