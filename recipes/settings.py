"""The settings of a measurement, and what the settings of several commands share, as pydantic models.

The module imports nothing slow, for a fast `--help`. What a command shares with a stage of the loop is a base class,
such as `Measurement`; the command's class adds the settings that the loop sets for its stages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, create_model, model_validator

from evenhand.evaluation import metrics as families
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.model_settings import (
    DecodingSettings,
    ModelSettings,
    OffensiveClassifierSettings,
    ResponseFileSettings,
)
from evenhand.evaluation.models.kinds import has_weights, model_kind
from evenhand.evaluation.prompt_settings import PromptSettings, ReferenceSettings, SentenceSettings
from evenhand.evaluation.settings import (
    BY_CONTENT,
    MAX_COUNT,
    NOT_COMPARED,
    WITHOUT_FLAG,
    Access,
    Seed,
    StrictSettings,
    group_of,
)
from evenhand.mitigation import methods
from evenhand.mitigation.methods import NoSettings, load_method, method_class
from evenhand.recipes.configs import command_of, shipped

if TYPE_CHECKING:  # slow to import
    pass

FAMILIES = {name: families.load_family(name)() for name in families.names()}
GENERATION_BIAS = "generation_bias"  # the default metrics; labels are made from its responses, and tuning reduces it
MODEL_IN_PATH = "{model}"  # in output_dir: the name of the measured model (`recipes.automatic`)
Trust = Annotated[bool, Field(description="execute code from the models' repositories", json_schema_extra=NOT_COMPARED)]
Servers = Annotated[
    list[str],
    Field(
        description="servers that only the record of a run names, and that may get texts, http://host:port/v1",
        json_schema_extra=NOT_COMPARED,
    ),
]
OutputDir = Annotated[Path, Field(description="folder to write to", json_schema_extra=NOT_COMPARED)]
OutputDirOfModel = Annotated[
    Path,
    Field(description=f"folder to write to; {MODEL_IN_PATH} is the name of the model", json_schema_extra=NOT_COMPARED),
]


def groups_class(
    name: str, groups: Mapping[str, type[StrictSettings]], *, is_optional: bool = True
) -> type[StrictSettings]:
    """Return a class of settings with a field for each group.

    Args:
        name: the name of the class.
        groups: the class of each group, by the name of the field.
        is_optional: whether a group may be null, which is then its default and is left out of records.
    """
    fields: dict[str, Any] = {}
    for field_name, group in groups.items():
        text = (group.__doc__ or field_name).splitlines()[0].rpartition(": ")[2]
        if is_optional:
            field = Field(default=None, description=text)
            fields[field_name] = (group | None, field)
        else:
            fields[field_name] = (group, Field(default_factory=group, description=text))
    return create_model(name, __base__=StrictSettings, **fields)


METHOD_SETTINGS = {name: method_class(name).Settings for name in methods.names()}
MethodGroups = groups_class(
    "MethodGroups", {name: group for name, group in METHOD_SETTINGS.items() if group is not NoSettings}
)
FamilyGroups = groups_class("FamilyGroups", {name: family.Settings for name, family in FAMILIES.items()})
ComparisonGroups = groups_class(
    "ComparisonGroups",
    {name: family.ComparisonSettings for name, family in FAMILIES.items() if family.ComparisonSettings is not None},
    is_optional=False,
)


def settings_of_methods(groups: StrictSettings, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the settings of methods in a command's settings, by the names of the methods that have any.

    With `names`, methods joined by "+", only the settings of these methods.
    """
    given = {name: getattr(groups, name) for name in MethodGroups.model_fields}
    given = {name: value for name, value in given.items() if value is not None}
    if names is None:
        return given
    wanted = {part for name in names for part in name.split(methods.JOIN)}
    return {name: value for name, value in given.items() if name in wanted}


class SharedGroups(StrictSettings):
    """Groups of settings that several families of metrics share (`Family.SHARED`)."""

    sentences: SentenceSettings | None = Field(default=None, description="how sentences are scored")
    references: ReferenceSettings | None = Field(default=None, description="gendered translations")
    offensive_classifier: OffensiveClassifierSettings | None = Field(
        default=None,
        description="classifier of offensive texts: of responses, of the prompts themselves, or of translations",
    )


class Tracked(StrictSettings):
    """Settings of the tracker."""

    report_to: Literal["wandb", "none"] = Field(
        default="wandb",
        description="where scores are logged; W&B works offline unless you are logged in",
        json_schema_extra=NOT_COMPARED,
    )
    upload: Literal["scores", "adapters", "responses", "all"] = Field(
        default="scores",
        description="what W&B gets: 'scores'; 'adapters': also adapters; 'responses': also prompts and responses, in "
        "samples and reports; 'all': all files",
        json_schema_extra=NOT_COMPARED,
    )
    group: str | None = Field(
        default=None,
        description="W&B group; null: of a loop or ablation, the name of output_dir",
        json_schema_extra=NOT_COMPARED | WITHOUT_FLAG,
    )


def groups_of(metrics: Iterable[str]) -> set[str]:
    """Return the names of the groups of settings that families of metrics have, of their own and shared."""
    names = set()
    for name in metrics:
        names |= {name, *FAMILIES[name].SHARED}
    return names


class Measurement(SharedGroups, FamilyGroups):
    """A measurement: the model, the metrics and their settings, the prompts and the decoding."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="model to measure")
    metrics: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: [GENERATION_BIAS],
        description=f"families of metrics to measure: {', '.join(families.names())}",
    )
    prompts: PromptSettings = Field(default_factory=PromptSettings, description="the prompts that the model gets")
    decoding: DecodingSettings = Field(
        default_factory=DecodingSettings, description="how the model generates responses"
    )
    capabilities: list[str] = Field(
        default_factory=list,
        description="tasks of lm-evaluation-harness to score, too",
        json_schema_extra=BY_CONTENT,
    )

    @property
    def has_file(self) -> bool:
        """Whether a file of responses is scored."""
        return False

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the measured model are loaded here."""
        return has_weights(self.model, has_file=self.has_file)

    @property
    def can_be_asked(self) -> bool:
        """Whether the measured model answers any prompt."""
        return model_kind(self.model, has_file=self.has_file).can_be_asked

    @model_validator(mode="after")
    def _check_families(self) -> Self:
        kind = model_kind(self.model)
        self._check_no_config()
        for name in self.metrics:
            if name not in FAMILIES:
                raise unknown_name("metrics", name, FAMILIES)
            if self.model.system_prompt and not FAMILIES[name].USES_SYSTEM_PROMPT:
                raise InputError("model.system_prompt", f"{name} does not use it; measure {name} without it.")
            needed = Access.WEIGHTS if self.capabilities else FAMILIES[name].NEEDS
            if needed not in kind.access(self.model):
                fix = "load the model"
                if needed == Access.LIKELIHOODS:
                    fix += f", or give {spelled('model.tokenizer')}, the model's, with a server that has them"
                raise InputError(
                    kind.SETTING,
                    f"{', '.join(self.capabilities) or name} needs {needed} of {self.model.address}; {fix}.",
                )
        if self.capabilities and GENERATION_BIAS not in self.metrics:
            raise InputError(
                "capabilities", f"only {GENERATION_BIAS} measures them; add it to metrics, or omit capabilities."
            )
        self._set_groups()
        return self

    def _check_no_config(self) -> None:
        """Raise InputError if the model's name is the name of a shipped config, and of no folder."""
        name = self.model.name
        if self.has_weights and name in shipped() and not Path(name).exists():
            raise InputError("model", f"{name!r} is no model but a shipped config; run `{command_of(name)}`.")

    def _set_groups(self) -> None:
        """Set the groups of settings of the families that are measured, and no others."""
        used = groups_of(self.metrics)
        for name in groups_of(FAMILIES):
            given = getattr(self, name)
            if name in used:
                kind = group_of(type(self).model_fields[name].annotation)
                if given is None and kind is not None:
                    setattr(self, name, kind())
                continue
            if given is not None and given != type(given)():
                fix = "add it" if name in FAMILIES else "add a family that has these settings"
                raise InputError(name, f"it is of no family among metrics {self.metrics}; {fix}, or omit its settings.")
            setattr(self, name, None)

    def with_metrics(self, *metrics: str) -> "Measurement":
        """Return a copy of the measurement with only the families `metrics` and their settings."""
        others = groups_of(FAMILIES) - groups_of(metrics)
        return self.replaced(metrics=list(metrics), **dict.fromkeys(others))


class MeasureSettings(Measurement, Tracked, MethodGroups):
    """Measure a model with one or more families of metrics."""

    split: Literal["measure", "train", "all"] = Field(
        default="measure", description="which prompts to use: for measuring, for training, or all"
    )
    write_prompts: Path | None = Field(
        default=None,
        description="file to write the prompts to, without measuring; .jsonl is for OpenAI's Batch API",
        json_schema_extra=NOT_COMPARED,
    )
    responses: ResponseFileSettings | None = Field(
        default=None, description="file of responses to score, in place of a model's"
    )
    criteria: Path | None = Field(
        default=None,
        description="YAML file of limits that are set before the first answer, for `audit`",
        json_schema_extra=BY_CONTENT,
    )
    method: str | None = Field(
        default=None,
        description="method to measure the model with, such as nearest_style; a+b: both; null: none",
    )
    screen_first: bool = Field(
        default=False,
        description="screen the model first, in OUTPUT_DIR-screen; the report shows whom the screen ranks first",
        json_schema_extra=NOT_COMPARED,
    )
    first_answers: Annotated[int, Field(ge=2, le=MAX_COUNT)] | None = Field(
        default=None,
        description="with screen_first, responses per template of the tenth of the people whom the screen ranks first; "
        "null: as of everybody",
        json_schema_extra=NOT_COMPARED,
    )
    seed: Seed = Field(default=0, description="random seed of prompts, answers and the bootstrap")
    output_dir: OutputDirOfModel = Path(f"runs/{MODEL_IN_PATH}")

    @model_validator(mode="after")
    def _check_responses(self) -> Self:
        samplers = [name for name, family in FAMILIES.items() if family.READS_RESPONSES]
        for name in ("write_prompts", "responses"):
            if getattr(self, name) and self.metrics != samplers:
                raise InputError(name, f"only {', '.join(samplers)} samples responses; measure it alone.")
        if self.responses:
            for name in ("model.source", "model.server", "capabilities"):
                group, _, field = name.rpartition(".")
                if getattr(self.model if group else self, field):
                    raise InputError(name, f"with a file of responses no model is loaded or asked; omit {name}.")
        return self

    @property
    def has_file(self) -> bool:
        """Whether a file of responses is scored."""
        return self.responses is not None and self.responses.name is not None

    @model_validator(mode="after")
    def _check_screen(self) -> Self:
        if self.screen_first and (self.responses or GENERATION_BIAS not in self.metrics):
            raise InputError("screen_first", f"only a model whose {GENERATION_BIAS} is measured is screened; omit it.")
        if self.first_answers is None:
            return self
        family = getattr(self, GENERATION_BIAS)
        fault = ""
        if not self.screen_first:
            fault = "it is of people whom a screen ranks first; give screen_first, too"
        elif self.prompts.is_own:
            fault = "only people of a taxonomy get more answers than others; omit it"
        elif self.first_answers <= self.prompts.answers_per_cell:
            fault = f"everybody gets {self.prompts.answers_per_cell}; give a larger number"
        elif family.until is not None:
            fault = "with until, answers decide how many more are asked; leave one of the two out"
        elif family.accepted is not None:
            fault = "differences are accepted on as many answers of everybody; leave one of the two out"
        if fault:
            raise InputError("first_answers", f"{self.first_answers}: {fault}.")
        return self

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        used = [] if self.method is None else [self.method]
        unused = settings_of_methods(self).keys() - settings_of_methods(self, used).keys()
        if unused:
            raise InputError(min(unused), f"the method is not {self.method}; give it, or omit its settings.")
        if self.method is not None:
            load_method(self.method)  # raises for an unknown one
            if self.responses:
                raise InputError("method", "with a file of responses no model is asked; omit it.")
        return self


class ScreenSettings(MeasureSettings):
    """Find whom a model treats differently by its predictions of first tokens, before anything is sampled."""

    metrics: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: ["screen"], description="families of metrics; the command is `measure --metrics screen`"
    )
    output_dir: OutputDirOfModel = Path(f"runs/{MODEL_IN_PATH}-screen")


def family_config(settings: MeasureSettings, family: str, *, for_comparisons: bool = False) -> FamilyConfig:
    """Return the config of a family's measurement; raise InputError if it needs a model and the settings name none."""
    wrap_model = None
    if settings.method is not None:
        styled = getattr(settings, GENERATION_BIAS)
        method = load_method(
            settings.method,
            settings_of_methods(settings),
            seed=settings.seed,
            style_classifier=None if styled is None else styled.style_classifier,
        )
        wrap_model = method.measured
    shared: dict[str, Any] = {}
    for shared_field in fields(FamilyConfig):
        value = getattr(settings, shared_field.name, None)
        if value is not None:
            shared[shared_field.name] = value
    config = FamilyConfig(
        **shared, settings=getattr(settings, family), for_comparisons=for_comparisons, wrap_model=wrap_model
    )
    if not settings.model.name and not settings.write_prompts and FAMILIES[family].loads_model(config):
        raise InputError(
            "model",
            f"none is given; give {spelled('model', 'NAME')}, a Hugging Face id or a folder, or begin with --config "
            "testbed (`evenhand loop`: --config loop), whose small models ship with Evenhand.",
        )
    return config
