"""The settings of a tuning. The module imports nothing slow, so that the command line starts fast."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from evenhand.evaluation.settings import Count, Fraction, Positive, StrictSettings
from evenhand.mitigation.methods import TrainedMethod

DEFAULTS: dict[str, float] = {"batch_size": 64, "epochs": 1}  # for settings that are not in the method's `defaults`
OF_SIZE = ("learning_rate", "batch_size")  # settings whose default depends on the model's size
SMALL_MODEL = 10_000_000  # parameters up to which a model has the methods' learning rates, as the testbed's models
# Default of larger models, unless the method states another: usual for LoRA from a hundred million parameters on (Hu et
# al. 2022, LoRA, appendix D, has it for GPT-2 and GPT-3). All weights have a tenth of it.
LEARNING_RATE = 2e-4
MAX_BATCH_SIZE = 16  # larger models: activations fill the memory (DialoGPT's in Smith et al. 2022, C.1)


class TuningSettings(StrictSettings):
    """Settings of `evenhand.mitigation.training.tune`.

    A null setting has the method's default (`defaults`), which suits the testbed's model of a million parameters. A
    larger model needs a lower learning rate and smaller batches: the method's `large_model_learning_rate` or
    LEARNING_RATE, and MAX_BATCH_SIZE.
    """

    model_config = ConfigDict(frozen=True)

    lora: bool = Field(default=True, description="train a LoRA adapter; false: all of the weights")
    lora_rank: Count = Field(default=16, description="rank of the adapter")
    lora_alpha: Positive = Field(default=32.0, description="scale of the adapter: alpha / rank")
    learning_rate: Positive | None = Field(
        default=None,
        description="peak learning rate; null: the method's default, usually 2e-4 for LoRA above 10 M parameters",
    )
    max_rows: Count | None = Field(
        default=None,
        description="maximum number of rows; null: the method's default, else all",
    )
    epochs: Count | None = Field(
        default=None,
        description="maximum passes over the rows; null: the method's default, else 1",
    )
    batch_size: Count | None = Field(
        default=None,
        description="rows per batch; null: the method's default, else 64, and at most 16 for a model above 10 M "
        "parameters",
    )
    gradient_accumulation_steps: Count = Field(default=1, description="batches per optimizer step")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations to save memory")
    trainer: dict[str, Any] = Field(default_factory=dict, description="any other arguments of transformers' trainer")
    peft: dict[str, Any] = Field(default_factory=dict, description="any other fields of PEFT's LoraConfig")
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.05, description="share of the steps in which the learning rate rises"
    )
    validation_fraction: Fraction = Field(default=0.05, description="share of the contexts whose rows are held out")
    evaluations_per_epoch: Count = Field(default=4, description="validations and checkpoints per epoch")
    max_perplexity_rise: Positive | None = Field(
        default=10.0,
        description="refuse a tuned model if its perplexity on neutral dialogue rises by more than this, in %; null: "
        "by any finite amount",
    )
    patience: Count = Field(default=3, description="stop after this many validations without a lower loss")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="bfloat16: mixed precision, slow on most CPUs",
    )

    def with_method_defaults(self, method: TrainedMethod, n_parameters: int | None = 0) -> "TuningSettings":
        """Return the settings with a method's defaults in place of null.

        The function is idempotent. If `n_parameters`, the model's number of parameters, is None, null settings OF_SIZE
        stay null.
        """
        defaults = DEFAULTS | dict(method.defaults)
        if n_parameters is None:
            defaults |= dict.fromkeys(OF_SIZE)
        elif n_parameters > SMALL_MODEL:
            large = method.large_model_learning_rate or LEARNING_RATE
            defaults["learning_rate"] = large * (1 if self.lora else 0.1)
            defaults["batch_size"] = min(defaults["batch_size"], MAX_BATCH_SIZE)
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.replaced(**missing)
