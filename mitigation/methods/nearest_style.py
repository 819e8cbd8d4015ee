"""Answer in the style of a response to another person; no training.

Of several candidates, the nearest in style to a response to another person is the answer. The contents
stay the person's own. Generation takes one response more than there are candidates.
"""

from evenhand.mitigation.methods import Method


class NearestStyle(Method):
    """Measures the model with responses whose styles come from other people's responses."""

    exchanges_style = True

    def measured(self, model):
        raise NotImplementedError
