"""The encoders of a campaign: opened by their specifications, and verified by their checksums."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.campaign.folder.description import (
    EMBEDDING,
    CampaignDescription,
    make_path_relative,
    resolve_campaign_path,
)
from labelwise.encoders.encoder import Encoder, Features, Kind
from labelwise.encoders.encoding import encode
from labelwise.encoders.registry import open_encoder
from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput

_LOCAL = ("onnx", "hf", "st")  # Prefixes that may be followed by a path


def open_new_encoder(home: Path, spec: str, kind: str, corpus: Sequence[str] | None) -> Encoder:
    """Open an encoder of a new campaign; ``tfidf`` is fitted to the corpus."""
    items: Kind = "images" if kind == "images" else "texts"
    prefix, _, rest = spec.partition(":")
    if prefix in _LOCAL and rest and resolve_campaign_path(home, rest).exists():
        spec = f"{prefix}:{resolve_campaign_path(home, rest)}"
    return open_encoder(
        spec,
        items,
        corpus=corpus,
        places=[home.absolute().parent],
    )


def open_campaign_encoders(home: Path, description: CampaignDescription) -> list[Encoder]:
    """Open the encoders of a campaign.

    Raises:
        BadInput: an encoder is not the one that the campaign was started with.
    """
    found: list[Encoder] = []
    for used in description.encoders:
        encoder: Encoder
        if used.spec == TfidfEncoder.name:
            encoder = TfidfEncoder.load(home / EMBEDDING)
        else:
            encoder = open_new_encoder(home, used.spec, description.kind, None)
        if encoder.checksum != used.checksum:
            raise BadInput(
                f"the encoder {used.spec} has changed since the campaign was started (checksum "
                f"{encoder.checksum[:12]} instead of {used.checksum[:12]}); restore it, or start "
                "another campaign"
            )
        found.append(encoder)
    return found


def encode_new_items(
    home: Path, description: CampaignDescription, items: Sequence[Any]
) -> Features:
    """Encode items that are not in the campaign, ``(n, sum of widths)``."""
    encoders = open_campaign_encoders(home, description)
    return np.concatenate([encode(items, encoder) for encoder in encoders], axis=1)


def relocate_encoder_spec(home: Path, spec: str) -> str:
    """Make the path in a specification relative to a campaign nearby."""
    prefix, _, rest = spec.partition(":")
    if prefix in _LOCAL and rest and Path(rest).expanduser().exists():
        return f"{prefix}:{make_path_relative(home, Path(rest).expanduser())}"
    return spec


def shorten_encoder_spec(spec: str) -> str:
    """A specification, or the path of a file of features, without folders.

    Example:
        >>> shorten_encoder_spec("onnx:../models/mine.onnx"), shorten_encoder_spec("../f.npy")
        ('onnx:mine.onnx', 'f.npy')
    """
    return re.sub(r"[^:]*/", "", spec)
