"""Resample: one of several candidates for each prompt is drawn by its weight in the even target, without training.

For a style vector φ, the weight is exp(λ_d · φ), with the λ of the prompt's descriptor from labelled responses
(`evenhand.mitigation.labelling.target`), or of the descriptor's axis if no response to the descriptor is labelled. With
many candidates, responses are distributed as the target: the method shows what a trained model can reach at best.
Generation takes as many times longer as there are candidates.
"""

TRAINER = None
INSTRUCTION = ""
RESAMPLES = True
USES_THRESHOLD = False
