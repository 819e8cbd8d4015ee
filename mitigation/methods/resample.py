"""Draw one of several candidates by its weight; no training.

For a style vector φ, the weight in the even target is exp(λ_d · φ), with the λ of the prompt's descriptor from labelled
responses (`evenhand.mitigation.target`), or of the descriptor's axis if no response to the descriptor is labelled. With
many candidates, responses are distributed as the target: the method shows what a trained model can reach at best.
Generation takes as many times longer as there are candidates.
"""

from evenhand.mitigation.methods import UntrainedMethod


class Resample(UntrainedMethod):
    """Measures the model with responses that are drawn from candidates."""

    resamples = True
