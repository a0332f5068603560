"""all-MiniLM-L6-v2: a small transformer for sentences.

Six layers of attention over the word pieces of a text, of which the first `PIECES` are read. The
features are the mean of the last layer's 384 channels over the pieces, scaled to length 1.

References: W. Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression
of Pre-Trained Transformers", NeurIPS 2020. N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019.
"""

import json
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelwise.benchmark.datasets.entries import Arrays, Files
from labelwise.benchmark.encoders.entries import Encode, Weights
from labelwise.benchmark.encoders.image_networks import fill_weights
from labelwise.errors import MissingDependency

PIECES = 64
"""Word pieces of a text that are read; the network could read 512, at ten times the cost."""

HEADS, LAYERS, WORDS, PLACES = 12, 6, 30_522, 512
BATCH = 16
TOKENIZER = "tokenizer.json"


class AttentionLayer(nn.Module):
    """Attention and two linear layers, each with a residual connection and normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        """``width`` channels, divided among the heads."""
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed, self.mixed_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.last_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, inputs: Tensor, there: Tensor) -> Tensor:
        """``(b, t, width)``; ``there`` ``(b, t)`` marks the pieces that are not padding."""
        query, key, value = (
            layer(inputs).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = there[:, None, None, :]
        heard = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = self.mixed_norm(inputs + self.mixed(heard.transpose(1, 2).flatten(2)))
        outputs: Tensor = self.last_norm(mixed + self.narrow(functional.gelu(self.wide(mixed))))
        return outputs


class MiniLM(nn.Module):
    """The network with the mean over the pieces."""

    def __init__(self, width: int = 384, heads: int = HEADS, layers: int = LAYERS) -> None:
        """With random parameters."""
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(PLACES, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(AttentionLayer(width, heads) for _ in range(layers))

    def forward(self, pieces: Tensor, there: Tensor) -> Tensor:
        """``(b, t)`` numbers of word pieces to ``(b, width)`` of length 1."""
        places = torch.arange(pieces.shape[1])
        found = self.norm(self.words(pieces) + self.places(places) + self.kinds.weight[0])
        for layer in self.layers:
            found = layer(found, there)
        shares = there[:, :, None].to(found.dtype)
        return functional.normalize((found * shares).sum(dim=1) / shares.sum(dim=1))


NAMES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "mixed",
    "attention.output.LayerNorm": "mixed_norm",
    "intermediate.dense": "wide",
    "output.dense": "narrow",
    "output.LayerNorm": "last_norm",
}
"""Names of the parts of a layer in the package, and here."""


def rename_weights(held: dict[str, Arrays]) -> dict[str, Arrays]:
    """Parameters of a BERT under the names used here, without unused ones."""
    found = {
        "words.weight": held["embeddings.word_embeddings.weight"],
        "places.weight": held["embeddings.position_embeddings.weight"],
        "kinds.weight": held["embeddings.token_type_embeddings.weight"],
        "norm.weight": held["embeddings.LayerNorm.weight"],
        "norm.bias": held["embeddings.LayerNorm.bias"],
    }
    for name, values in held.items():
        if name.startswith("encoder.layer."):
            number, _, part = name.removeprefix("encoder.layer.").partition(".")
            called, _, kind = part.rpartition(".")
            found[f"layers.{number}.{NAMES[called]}.{kind}"] = values
    return found


def read_weights(files: Files) -> dict[str, Arrays]:
    """The parameters from a safetensors file, and the tokenizer's description as bytes."""
    (data,) = (data for name, data in files.items() if name.endswith(".safetensors"))
    (words,) = (data for name, data in files.items() if name.endswith(TOKENIZER))
    begin = 8 + int.from_bytes(data[:8], "little")
    held = {}
    for name, entry in json.loads(data[8:begin]).items():
        if entry.get("dtype") == "F32":
            first, count = begin + entry["data_offsets"][0], prod(entry["shape"])
            held[name] = np.frombuffer(data, "<f4", count, first).reshape(entry["shape"])
    return {**rename_weights(held), TOKENIZER: np.frombuffer(words, np.uint8)}


def build_encoder(weights: Weights, corpus: Arrays) -> Encode:
    """The function that encodes texts."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependency(
            "reading texts with MiniLM needs tokenizers; install labelwise[huggingface]"
        ) from error
    pieces = Tokenizer.from_str(bytes(weights[TOKENIZER]).decode())
    pieces.enable_truncation(PIECES)
    pieces.enable_padding()
    own = {name: values for name, values in weights.items() if name != TOKENIZER}
    network = fill_weights(MiniLM(), own).eval()

    def encode(texts: Arrays) -> Arrays:
        found = np.empty((len(texts), 384), np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")  # less padding
        with torch.inference_mode():
            for begin in range(0, len(order), BATCH):
                some = order[begin : begin + BATCH]
                batch = pieces.encode_batch([str(text) for text in texts[some]])
                numbers = torch.tensor([entry.ids for entry in batch])
                there = torch.tensor([entry.attention_mask for entry in batch]).bool()
                found[some] = network(numbers, there).numpy()
        return found

    return encode
