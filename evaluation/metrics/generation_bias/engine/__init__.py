"""The engine: from the values of a measure, or from style vectors, to scores, effects and paired changes."""
