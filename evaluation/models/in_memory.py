"""A model of transformers that the caller has loaded, with its tokenizer."""

import hashlib
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.kinds.weights import LoadedModel

if TYPE_CHECKING:  # imports torch
    import torch
    from transformers import PreTrainedModel

    from evenhand.evaluation.models.loading import DialogueModel


class InMemoryModel(LoadedModel):
    """A causal or encoder-decoder model that is loaded already; its identity is of weights and tokenizer."""

    def __init__(self, engine: "DialogueModel", named: Model) -> None:
        """Take the loaded model in place of the weights that `named`, a model that is not loaded, names."""
        super().__init__(named.settings, named.decoding, tag=named._tag, seed=named.seed)
        self.engine = engine

    @cached_property
    def is_masked(self) -> bool:
        return False

    @cached_property
    def revision(self) -> str:
        """The SHA-256 of the weights."""
        return weights_sha256(self.load().model)

    def identity(self) -> dict[str, Json]:
        """Return the hash of the weights and, as no folder has the tokenizer, that of an example of its prompts."""
        from evenhand.evaluation.models.contexts import prompt_format

        return {"model": self.revision, "format": prompt_format(self.load())["sha256"]}

    def check_memory(self) -> None:
        """Accept the model, which is in memory already."""

    def with_settings(self, **changes: object) -> "InMemoryModel":
        named = LoadedModel(self.settings.replaced(**changes), self.decoding, tag=self._tag, seed=self.seed)
        return InMemoryModel(replace(self.load(), system_prompt=named.settings.system_prompt or ""), named)

    def close(self) -> None:
        """Keep the model, which the caller has."""


def check_saved(model: "PreTrainedModel", name: str, *, trust_remote_code: bool = False) -> None:
    """Raise InputError if a loaded model has other weights than the saved one of this name.

    An adapter that is trained on the loaded weights would be put on the saved ones. Quantized weights are not compared.
    """
    from evenhand.evaluation.models.checkpoints import is_quantized, load_network
    from evenhand.evaluation.models.loading import text_generation_class

    if is_quantized(model):
        return
    dtype = str(model.dtype).removeprefix("torch.")
    settings = ModelSettings.model_validate(
        {"name": name, "dtype": dtype, "device": "cpu", "trust_remote_code": trust_remote_code}
    )
    saved, _ = load_network(settings, text_generation_class)
    if weights_sha256(saved) != weights_sha256(model):
        raise InputError(
            "model",
            f"its weights are not those that are saved under its name, {name}, which the adapter would be put on; save "
            "the model as it is, without adapters, and load it from there.",
        )


def weights_sha256(model: "torch.nn.Module") -> str:
    """Return a SHA-256 of a model's weights and of the active adapters of each layer, with their scaling."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    module: Any
    for name, module in model.named_modules():
        if isinstance(getattr(module, "disable_adapters", None), bool):  # PEFT's layers; a model has a method
            acting = () if module.disable_adapters else tuple(module.active_adapters)
            strengths = getattr(module, "scaling", {})
            digest.update(f"{name} {[(each, strengths.get(each)) for each in acting]}".encode())
    return digest.hexdigest()
