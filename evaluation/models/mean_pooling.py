"""A classifier on a sentence encoder: the mean of the encoder's token vectors, a hidden layer, and the labels.

Sentence encoders are trained with this mean (Reimers and Gurevych 2019, §3), unlike with the vector of the first token.
"""

from pathlib import Path

import torch
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import SequenceClassifierOutput

from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.model_settings import CheckpointSettings
from evenhand.evaluation.models.checkpoints import (
    check_adapter_fits,
    ignore_renamed_checkpointing,
    load_tokenizer,
    load_weights,
)
from evenhand.evaluation.models.classifier_folders import FIELD, find_encoder, read_description

HEAD = "head"
DROPOUT = 0.1  # of the head in training, as in BERT


class MeanPoolingClassifier(PreTrainedModel):
    """An encoder, and a head with one hidden layer on the mean of its token vectors."""

    _supports_sdpa = True  # transformers asks the outer class, although all attention is the encoder's

    def __init__(self, encoder: PreTrainedModel, n_labels: int) -> None:
        super().__init__(encoder.config)
        size = encoder.config.hidden_size
        self.encoder = encoder
        self.head = torch.nn.Sequential(
            torch.nn.Linear(size, size),
            torch.nn.GELU(),
            torch.nn.Dropout(DROPOUT),
            torch.nn.Linear(size, n_labels),
        )

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> SequenceClassifierOutput:
        """Return the logits of n texts, (n, labels), given the token ids and the mask of real tokens, both (n, t)."""
        vectors = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(vectors.dtype)
        means = (vectors * mask).sum(dim=1) / mask.sum(dim=1)
        return SequenceClassifierOutput(logits=self.head(means))


def load_adapted_classifier(
    model: CheckpointSettings, folder: Path
) -> tuple[MeanPoolingClassifier, PreTrainedTokenizerBase]:
    """Return the classifier in a folder of `train_classifier` and its tokenizer; changes are merged into the encoder.

    Raises:
        InputError: the encoder is missing or has other weights, or the adapter is damaged.
    """
    from peft import PeftModel  # slow to import where bitsandbytes is installed

    description = read_description(folder)
    encoder_folder = find_encoder(description.encoder, description.encoder_sha256)
    source = model.replaced(name=str(encoder_folder), revision=None)
    encoder = load_weights(AutoModel, source)
    kind = "multi" if description.has_several_labels else "single"
    encoder.config.update(
        {"id2label": dict(enumerate(description.labels)), "problem_type": f"{kind}_label_classification"}
    )
    classifier = MeanPoolingClassifier(encoder, n_labels=len(description.labels))
    try:
        with ignore_renamed_checkpointing():
            adapted = PeftModel.from_pretrained(classifier, str(folder), use_safetensors=True)
        check_adapter_fits(folder, adapted)
    except Exception as error:  # damaged files lead to errors of all kinds
        raise InputError(FIELD, f"the adapter in {folder} is damaged ({first_line(error)}).") from None
    return adapted.merge_and_unload(safe_merge=True), load_tokenizer(source, encoder.config)
