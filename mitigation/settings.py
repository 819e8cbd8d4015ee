"""How a model is tuned: a dataclass read strictly, apart from the trainer so that the command line starts at once."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class TuningSettings:
    """Settings of `mitigation.training.tune`; the defaults are for the testbed's model of a million parameters.

    Larger models want a lower learning rate: about 2e-4 for LoRA on hundreds of millions of parameters.
    """

    lora: bool = Field(True, description="train a LoRA adapter; false: all of the weights")
    lora_rank: Count = Field(16, description="rank of the adapter")
    lora_alpha: Positive = Field(32.0, description="the adapter's product is scaled by alpha / rank")
    learning_rate: Positive = Field(4e-3, description="peak, reached after the warmup, then linear to 0")
    epochs: Count = Field(1, description="passes over the rows, at most")
    batch_size: Count = Field(64, description="rows per step")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="of AdamW")
    warmup: Annotated[float, Field(ge=0, lt=1)] = Field(0.05, description="share of the steps in which the rate rises")
    validation_fraction: Share = Field(0.05, description="share of the rows held out, by context")
    evaluations_per_epoch: Count = Field(4, description="validations, and checkpoints, in one pass")
    patience: Count = Field(3, description="stop after so many validations without a new best loss")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of held-out rows, the adapter, and the order of rows")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: mixed precision, slow on most CPUs")
