"""Classifiers of Hugging Face transformers as modules that any torch learner can train.

* Inputs are keywords: the whole output of the tokenizer, or one array for the model's main input
  (``input_ids``, ``pixel_values``).
* The output is the tensor of logits.
* A model that scores every token and keeps the last (such as GPT-2 and Llama) scores only the last
  token, so that its features are one vector per text.
* Padding without an attention mask, and labels among the inputs, are rejected.

Reference: T. Wolf and others, "Transformers: State-of-the-Art Natural Language Processing",
EMNLP 2020, System Demonstrations.
"""

from typing import Any

import torch
from torch import Tensor, nn

from labelwise.errors import BadInput, require_extra


class HuggingFaceClassifier(nn.Module):
    """A sequence or image classifier of Hugging Face that gives logits ``(b, K)``.

    `labelwise.TorchLearner` finds its last linear layer; a name of it starts with ``model.``, as in
    ``head="model.classifier"``.

    Example:
        >>> import numpy as np
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> from labelwise import TorchLearner
        >>> from labelwise.learners.hugging_face import HuggingFaceClassifier
        >>> config = BertConfig(
        ...     vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=16, num_labels=2,
        ... )
        >>> make = lambda: HuggingFaceClassifier(BertForSequenceClassification(config))
        >>> learner = TorchLearner(make, optimizer="adamw", epochs=2)
        >>> texts = {  # as a tokenizer gives them
        ...     "input_ids": np.random.default_rng(0).integers(1, 30, size=(8, 5)),
        ...     "attention_mask": np.ones((8, 5), dtype=int),
        ... }
        >>> report = learner.fit(texts, [0, 1, 0, 1, 0, 1, 0, 1], seed=0)
        >>> learner.represent(texts, ["features"])["features"].shape
        (8, 16)
    """

    def __init__(self, model: Any) -> None:
        """Wrap a model such as that of ``AutoModelForSequenceClassification.from_pretrained``."""
        super().__init__()
        with require_extra("HuggingFaceClassifier needs the package transformers", "huggingface"):
            from transformers import PreTrainedModel
        if not isinstance(model, PreTrainedModel):
            raise BadInput(f"a model of transformers is needed; got {type(model).__name__}")
        self.model: Any = model

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the order of the logits."""
        names = self.model.config.id2label
        return [names[number] for number in sorted(names)]

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """The logits ``(b, K)`` of a batch."""
        if inputs:
            named = {self.model.main_input_name: inputs[0], **named}
        if "labels" in named or "label" in named:
            raise BadInput("the inputs hold labels; take them out and give them as targets")
        self._check_token_padding(named)
        if isinstance(getattr(self.model, "score", None), nn.Linear):
            return self._score_of_last_token(named)
        logits: Tensor = self.model(**named).logits
        return logits

    def _check_token_padding(self, named: dict[str, Tensor]) -> None:
        padding = self._get_padding_token()
        ids = named.get("input_ids")
        if ids is None or padding is None or "attention_mask" in named:
            return
        if bool((ids == padding).any()):
            raise BadInput(
                f"the inputs hold the padding token {padding} but no attention_mask; give the "
                "whole output of the tokenizer"
            )

    def _score_of_last_token(self, named: dict[str, Tensor]) -> Tensor:
        """The logits of the model, from the features of one token per text."""
        hidden: Tensor = self.model.base_model(**named)[0]
        last = self._find_last_tokens(named, hidden)
        logits: Tensor = self.model.score(hidden[torch.arange(len(last)).to(last.device), last])
        return logits

    def _find_last_tokens(self, named: dict[str, Tensor], hidden: Tensor) -> Tensor:
        """Positions ``(b,)`` of the last tokens that are not padding, as in the models."""
        count, length = hidden.shape[:2]
        ids, padding, mask = (
            named.get("input_ids"),
            self._get_padding_token(),
            named.get("attention_mask"),
        )
        if ids is not None and padding is not None:
            real = ids != padding
        elif mask is not None:
            real = mask > 0
        else:
            real = torch.ones(count, length, dtype=torch.bool, device=hidden.device)
        positions = torch.arange(length, device=hidden.device)
        return (positions * real).argmax(dim=1)

    def _get_padding_token(self) -> int | None:
        config = self.model.config
        found: int | None = getattr(config, "pad_token_id", None)
        return found
