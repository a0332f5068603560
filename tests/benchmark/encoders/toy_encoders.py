"""Encoders that are quick, in a cache folder of their own."""

import numpy as np
import pytest

from labelwise.benchmark.encoders import CATALOGUE, PretrainedEncoder
from labelwise.benchmark.studies import encoded, growth


def project(width, weights, corpus):
    """Random directions of the pixels."""

    def encode(images):
        flat = images.reshape(len(images), -1)
        directions = np.random.default_rng(width).normal(size=(flat.shape[1], width))
        return (flat @ directions).astype(np.float32)

    return encode


def toy(width):
    return PretrainedEncoder(
        f"toy_{width}", "images", width, lambda w, c: project(width, w, c), f"{width} directions"
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, and toy encoders in the catalogue."""
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path))
    for width in (6, 12, 20):
        monkeypatch.setitem(CATALOGUE, f"toy_{width}", toy(width))
    for cached in (encoded.combine_encoders, growth._weigh_encoder):
        cached.cache_clear()
    yield tmp_path
    for cached in (encoded.combine_encoders, growth._weigh_encoder):
        cached.cache_clear()
