"""Encoders in ONNX files, run by onnxruntime; the only home of onnxruntime and tokenizers.

On a CPU every batch runs on one thread and several batches run at the same time, each together with
the decoding of its images. That is faster than all threads on one batch: nothing waits for the
slowest thread, and a small batch stays in the cache.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.encoders.encoder import SIDE, Features, Kind, check_features
from labelwise.errors import BadInput, first_line, require_extra
from labelwise.threads import thread_count

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels of ImageNet, by which models with float inputs expect images to be scaled."""

TOKENS = 256  # Number of word pieces of a text that are read

_CUDA = "CUDAExecutionProvider"

_PRECISIONS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def open_onnx(
    path: Path, *, name: str, device: str = "auto", tokenizer: Path | None = None
) -> "OnnxImageEncoder | OnnxTextEncoder":
    """Open a model of images or, if it has an input ``input_ids``, of texts.

    The tokenizer of a model of texts is ``tokenizer.json`` next to the file if None.
    """
    session, on_gpu = _open_onnx_session(path, device)
    inputs = [entry.name for entry in session.get_inputs()]
    if "input_ids" not in inputs:
        return OnnxImageEncoder(session, name=name, checksum=hash_files(path), on_gpu=on_gpu)
    tokenizer = tokenizer or path.parent / "tokenizer.json"
    if not tokenizer.is_file():
        raise BadInput(f"{path} encodes texts and needs {tokenizer}; copy the model's file there")
    checksum = hash_files(path, tokenizer)
    return OnnxTextEncoder(session, tokenizer, name=name, checksum=checksum, on_gpu=on_gpu)


def hash_files(*paths: Path) -> str:
    """SHA-256 of the contents of one file, or of the checksums of several."""
    found = []
    for path in paths:
        with path.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


class OnnxImageEncoder:
    """A model with one input of images, ``(b, 3, h, h)`` or ``(b, h, h, 3)``.

    An input of bytes gets pixels from 0 to 255; an input of floats gets pixels from 0 to 1, minus
    the mean and divided by the deviation of ImageNet. The first output is used: ``(b, d)``; the
    mean over the image of ``(b, d, h, w)``; or the first token of ``(b, tokens, d)``.
    """

    kind: Kind = "images"

    def __init__(self, session: Any, *, name: str, checksum: str, on_gpu: bool) -> None:
        """Check the model and run it once, to find the number of features."""
        self.name, self.checksum, self._session = name, checksum, session
        inputs = session.get_inputs()
        shape = list(inputs[0].shape)
        if len(inputs) != 1 or len(shape) != 4 or 3 not in (shape[1], shape[3]):
            found = ", ".join(f"{entry.name} {entry.shape}" for entry in inputs)
            raise BadInput(
                f"{name} takes {found}; an encoder takes one input of images, (b, 3, h, h) or "
                "(b, h, h, 3), or the input_ids of texts"
            )
        self._last = shape[1] != 3
        side = shape[1 if self._last else 2]
        self.side = side if isinstance(side, int) else SIDE
        self._input, self._type = inputs[0].name, inputs[0].type
        if self._type != "tensor(uint8)" and self._type not in _PRECISIONS:
            raise BadInput(f"{name} takes {self._type}; export it with bytes or float32 as input")
        self._fixed = shape[0] if isinstance(shape[0], int) else None  # a fixed batch size
        self.batch_size = self._fixed or (64 if on_gpu else 8)
        self.workers = 2 if on_gpu else thread_count()
        self.dimension = 0
        self.dimension = self.encode_batch(np.zeros((1, 3, self.side, self.side), np.uint8)).shape[
            1
        ]

    def encode_batch(self, images: NDArray[np.uint8]) -> Features:
        """Encode ``(b, 3, side, side)`` uint8 images to ``(b, d)``."""
        count, step = len(images), self._fixed or len(images)
        parts = [
            self._run_onnx_model(images[first : first + step]) for first in range(0, count, step)
        ]
        found = np.concatenate(parts)[:count]
        return check_features(self.name, found, count, self.dimension or None)

    def _run_onnx_model(self, images: NDArray[Any]) -> NDArray[Any]:
        if self._fixed is not None and len(images) < self._fixed:
            blank = np.zeros((self._fixed - len(images), *images.shape[1:]), images.dtype)
            images = np.concatenate([images, blank])
        if self._type in _PRECISIONS:
            mean, deviation = (np.reshape(v, (1, 3, 1, 1)) for v in (MEAN, DEVIATION))
            scaled = (images / 255 - mean) / deviation
            images = scaled.astype(_PRECISIONS[self._type])
        if self._last:
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        output = _run_onnx_session(self._session, self.name, {self._input: images})
        if output.ndim == 4:
            return np.asarray(output.mean(axis=(2, 3)))
        return output[:, 0] if output.ndim == 3 else output


class OnnxTextEncoder:
    """A transformer with the inputs ``input_ids`` and ``attention_mask``.

    Tokens are averaged, and rows are scaled to length 1. Texts are run one at a time: nothing is
    padded, and the rows of a quantized model do not depend on the other texts of the batch.
    """

    kind: Kind = "texts"
    side = 0

    def __init__(
        self, session: Any, tokenizer: Path, *, name: str, checksum: str, on_gpu: bool
    ) -> None:
        """Load the tokenizer and run the model once, to find the number of features."""
        with require_extra("encoding texts needs tokenizers", "encoders"):
            from tokenizers import Tokenizer
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # tokenizers raises plain exceptions
            raise BadInput(f"{tokenizer} is not a tokenizer ({first_line(error)})") from error
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.no_padding()
        self.name, self.checksum, self._session = name, checksum, session
        self._inputs = {entry.name for entry in session.get_inputs()}
        self.batch_size, self.workers = 16, 2 if on_gpu else thread_count()
        self.dimension = 0
        self.dimension = self.encode_batch(["a text"]).shape[1]

    def encode_batch(self, texts: list[str]) -> Features:
        """Encode b texts to ``(b, d)``."""
        found = np.stack([self._run_onnx_model(text) for text in texts])
        return check_features(self.name, found, len(texts), self.dimension or None)

    def _run_onnx_model(self, text: str) -> NDArray[Any]:
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        given["token_type_ids"] = np.zeros_like(ids)
        given = {name: value for name, value in given.items() if name in self._inputs}
        output = _run_onnx_session(self._session, self.name, given)
        row = output[0].mean(axis=0) if output.ndim == 3 else output[0]
        return np.asarray(row / max(np.linalg.norm(row), 1e-12))


def _open_onnx_session(path: Path, device: str) -> tuple[Any, bool]:
    """Load a model; return the session and whether it runs on a GPU."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}; give a model in the ONNX format")
    with require_extra("encoders need onnxruntime", "encoders"):
        import onnxruntime
    if device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"device is auto, cpu or cuda; got {device!r}")
    providers: list[str] = []
    if device != "cpu" and _CUDA in onnxruntime.get_available_providers():
        providers = [_CUDA]
        if hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()  # finds the CUDA libraries that torch has installed
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors only; they are raised too
    try:
        session = onnxruntime.InferenceSession(
            path, options, providers=[*providers, "CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's errors share no other base class
        raise BadInput(
            f"{path} cannot be loaded as an ONNX model ({first_line(error)}); export it again"
        ) from error
    on_gpu = session.get_providers()[0] == _CUDA  # without CUDA libraries it is the CPU's
    if device == "cuda" and not on_gpu:
        raise BadInput("onnxruntime finds no GPU; run pip install onnxruntime-gpu, or use the cpu")
    return session, on_gpu


def _run_onnx_session(session: Any, name: str, given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The first output of a model."""
    try:
        output: NDArray[Any] = session.run(None, given)[0]
    except Exception as error:
        shapes = ", ".join(f"{key} {value.shape}" for key, value in given.items())
        raise BadInput(f"{name} cannot encode {shapes} ({first_line(error)})") from error
    return output
