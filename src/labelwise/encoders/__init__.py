"""Frozen pretrained encoders of images and texts, without torch.

=======================  ==========================================================================
`encode`                 features of a folder, of images or of texts, ``(n, d)``
`open_encoder`           an encoder by its specification, such as ``"minilm"`` or ``"onnx:FILE"``
`fetch_encoder`          download the file of an encoder that is not in the package
`PartialFeatures`        features on disk while they are computed; an interrupted run continues
`Encoder`                the interface
=======================  ==========================================================================
"""

from labelwise.encoders.encoder import Encoder
from labelwise.encoders.encoding import encode
from labelwise.encoders.feature_files import PartialFeatures
from labelwise.encoders.registry import BUILT_IN, fetch_encoder, open_encoder

__all__ = ["BUILT_IN", "Encoder", "PartialFeatures", "encode", "fetch_encoder", "open_encoder"]
