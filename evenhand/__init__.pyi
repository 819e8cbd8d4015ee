"""The public objects of `import evenhand`, listed once: type checkers read it, and `__init__.py` at run time."""

from evenhand.api import Run as Run
from evenhand.api import compare as compare
from evenhand.api import label as label
from evenhand.api import measure as measure
from evenhand.api import tune as tune
from evenhand.evaluation.data.language.mentions import clean_response as clean_response
from evenhand.evaluation.data.style_clusters import load_style_clusters as load_style_clusters
from evenhand.evaluation.errors import InputError as InputError
from evenhand.evaluation.metrics.generation_bias.answers import Answers as Answers
from evenhand.evaluation.metrics.generation_bias.derived_clusters import derive_style_clusters as derive_style_clusters
from evenhand.evaluation.metrics.generation_bias.engine.effects import effect_changes as effect_changes
from evenhand.evaluation.metrics.generation_bias.engine.effects import effects as effects
from evenhand.evaluation.metrics.generation_bias.engine.spread import compare_generation_bias as compare_generation_bias
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias as generation_bias
from evenhand.evaluation.metrics.generation_bias.parts.effects import effects_figure as effects_figure
from evenhand.evaluation.models.classifier_kinds import load_style_classifier as load_style_classifier
from evenhand.evaluation.models.styles import style_vectors as style_vectors
from evenhand.evaluation.report.score_table import score_figure as score_figure
from evenhand.evaluation.report.score_table import score_table as score_table
from evenhand.evaluation.score import BiasScore as BiasScore
from evenhand.evaluation.score import signature_line as signature_line
from evenhand.mitigation.bias_callback import BiasCallback as BiasCallback
from evenhand.mitigation.labels import label_responses as label_responses
from evenhand.recipes.check import assert_no_worse as assert_no_worse
from evenhand.responses import MeasuredResponses as MeasuredResponses
from evenhand.responses import measure_responses as measure_responses

__version__: str
