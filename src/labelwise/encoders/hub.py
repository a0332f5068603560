"""Encoders of the model hubs, loaded by transformers, sentence-transformers or timm.

These libraries and torch are imported here only, and only when such an encoder is opened. A model
is given by its name on the hub, or by a folder. Files that were downloaded before are used without
asking the hub.
"""

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.arrays import Array
from labelwise.encoders.encoder import SIDE, Features, Kind, check_features
from labelwise.errors import BadInput, MissingDependency, first_line

SECONDS = 5
"""Time that the hub has to answer before a model is downloaded; the libraries retry for longer."""

_INSTALL = {
    "transformers": "'labelwise[huggingface]'",
    "sentence_transformers": "sentence-transformers",
    "timm": "timm",
}
"""What to install for a library; torch comes with each."""


class HubEncoder:
    """A torch model behind the interface of an encoder."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        call: Callable[[Any], Any],
        *,
        checksum: str,
        side: int = 0,
        on_gpu: bool = False,
    ) -> None:
        """Run the model once, to find the number of features."""
        self.name, self.kind, self.checksum, self.side = name, kind, checksum, side
        self.batch_size, self.workers = (64 if on_gpu else 16), 2
        self._call, self.dimension = call, 0
        blank: Any = np.zeros((1, 3, side, side), np.uint8) if kind == "images" else ["a text"]
        self.dimension = self.encode_batch(blank).shape[1]

    def encode_batch(self, items: Any) -> Features:
        """Encode b items to ``(b, d)``."""
        try:
            found = self._call(items)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"{self.name} cannot encode {self.kind} ({first_line(error)})"
            ) from error
        return check_features(self.name, found, len(items), self.dimension or None)


def open_transformers(model: str, kind: Kind, device: str) -> HubEncoder:
    """Open a model of images or texts by transformers.

    Images: the pooled output, or the first token, or the mean over the image. Texts: the mean of
    the tokens, scaled to length 1.
    """
    torch, tools = _import_hub_libraries("transformers")
    name, place = f"hf:{model}", _choose_hub_device(torch, device)
    network = _load_transformers_network(name, tools, model).eval().to(place)
    checksum, on_gpu = _hash_network_parameters(torch, network), place != "cpu"
    if kind == "texts":
        tokenizer = _load_cached_hub_model(
            name, model, lambda **local: tools.AutoTokenizer.from_pretrained(model, **local)
        )
        longest = min(int(getattr(network.config, "max_position_embeddings", 512)), 512)

        def encode_texts(texts: Sequence[str]) -> Array:
            batch = tokenizer(
                list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt"
            ).to(place)
            with torch.inference_mode():
                tokens = network(**batch).last_hidden_state
                mask = batch["attention_mask"][..., None].to(tokens.dtype)
                rows = (tokens * mask).sum(dim=1) / mask.sum(dim=1)
                return torch.nn.functional.normalize(rows, dim=1).float().cpu().numpy()

        return HubEncoder(name, kind, encode_texts, checksum=checksum, on_gpu=on_gpu)
    side, mean, deviation = _read_image_preparation(model, network.config)

    def encode_images(images: NDArray[np.uint8]) -> Array:
        with torch.inference_mode():
            pixels = _scale_pixels(torch, images, mean, deviation, place).to(network.dtype)
            if hasattr(network, "get_image_features"):  # models of images and texts
                found = network.get_image_features(pixel_values=pixels)
            else:
                found = network(pixel_values=pixels)
        return _pool_image_outputs(found).float().cpu().numpy()

    return HubEncoder(name, kind, encode_images, checksum=checksum, side=side, on_gpu=on_gpu)


def open_sentence_transformers(model: str, device: str) -> HubEncoder:
    """Open a model of texts by sentence-transformers."""
    torch, tools = _import_hub_libraries("sentence_transformers")
    name, place = f"st:{model}", _choose_hub_device(torch, device)
    network = _load_cached_hub_model(
        name, model, lambda **local: tools.SentenceTransformer(model, device=place, **local)
    )

    def encode_texts(texts: Sequence[str]) -> Array:
        return network.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)

    checksum, on_gpu = _hash_network_parameters(torch, network), place != "cpu"
    return HubEncoder(name, "texts", encode_texts, checksum=checksum, on_gpu=on_gpu)


def open_timm(model: str, device: str) -> HubEncoder:
    """Open a model of images by timm, without its classification layer."""
    torch, tools = _import_hub_libraries("timm")
    name, place = f"timm:{model}", _choose_hub_device(torch, device)
    network = _load_hub_model(
        name, lambda: tools.create_model(model, pretrained=True, num_classes=0)
    )
    network = network.eval().to(place)
    form = tools.data.resolve_model_data_config(network)

    def encode_images(images: NDArray[np.uint8]) -> Array:
        with torch.inference_mode():
            pixels = _scale_pixels(torch, images, form["mean"], form["std"], place)
            return network(pixels).float().cpu().numpy()

    checksum, side = _hash_network_parameters(torch, network), int(form["input_size"][-1])
    on_gpu = place != "cpu"
    return HubEncoder(name, "images", encode_images, checksum=checksum, side=side, on_gpu=on_gpu)


def _import_hub_libraries(library: str) -> tuple[ModuleType, ModuleType]:
    """Torch and the library."""
    try:
        return importlib.import_module("torch"), importlib.import_module(library)
    except (ImportError, OSError, RuntimeError) as error:  # the last two: versions do not match
        raise MissingDependency(
            f"this encoder needs {library.replace('_', '-')} ({first_line(error)}); run pip "
            f"install {_INSTALL[library]}"
        ) from error


def _load_hub_model(name: str, load: Callable[[], Any]) -> Any:
    """Load a model; errors of the library become one line."""
    try:
        return load()
    except Exception as error:  # each library has its own errors
        raise BadInput(
            f"{name} cannot be loaded ({first_line(error)}); check the name and the network, or "
            "give a folder"
        ) from error


def _load_cached_hub_model(name: str, model: str, load: Callable[..., Any]) -> Any:
    """Load a model from this machine, or download it if the hub answers."""
    if not Path(model).exists():
        try:
            return load(local_files_only=True)
        except Exception:  # each library has its own errors; what is wrong shows below
            _check_hub_connection(name)
    return _load_hub_model(name, load)


def _check_hub_connection(name: str) -> None:
    """Reject a download without a network at once."""
    hub = importlib.import_module("huggingface_hub")
    reason = "HF_HUB_OFFLINE is set"
    if not hub.constants.HF_HUB_OFFLINE:
        try:
            hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=SECONDS)
            return
        except Exception as error:  # of the library for requests, which depends on the version
            reason = first_line(error)
    raise BadInput(
        f"{name} is not on this machine and cannot be downloaded ({reason}); give the folder of a "
        "model, or connect to the network once"
    )


def _load_transformers_network(name: str, tools: ModuleType, model: str) -> Any:
    """A model without its task; a pooling layer that its file does not hold is left out."""
    with _silence_transformers(tools.logging):  # what is missing is handled below
        network, found = _load_cached_hub_model(
            name,
            model,
            lambda **local: tools.AutoModel.from_pretrained(
                model, output_loading_info=True, **local
            ),
        )
    missing = sorted(found["missing_keys"])
    if any(not key.startswith("pooler.") for key in missing):
        raise BadInput(f"{name} lacks weights ({missing[0]}, ...); save the whole model again")
    if missing:  # a classifier's file, for example; transformers fills such a layer at random
        network.pooler = None
    return network


@contextlib.contextmanager
def _silence_transformers(logging: ModuleType) -> Iterator[None]:
    """No reports and progress bars of transformers."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()


def _choose_hub_device(torch: ModuleType, device: str) -> str:
    if device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"device is auto, cpu or cuda; got {device!r}")
    gpu = torch.cuda.is_available()
    if device == "cuda" and not gpu:
        raise BadInput("torch finds no GPU; use the cpu")
    return "cuda" if gpu and device != "cpu" else "cpu"


def _hash_network_parameters(torch: ModuleType, network: Any) -> str:
    """SHA-256 of the parameters and their names."""
    total = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        total.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return total.hexdigest()


def _read_image_preparation(
    model: str, config: Any
) -> tuple[int, Sequence[float], Sequence[float]]:
    """Side, mean and deviation of the images that a model of transformers expects.

    They are in ``preprocessor_config.json``. The file is read here because the library's own
    preparation needs torchvision.
    """
    base = importlib.import_module("transformers.image_processing_base")
    found: dict[str, Any] = {}
    read = base.ImageProcessingMixin.get_image_processor_dict
    with contextlib.suppress(OSError, BadInput):  # there is no such file
        found = _load_cached_hub_model(model, model, lambda **local: read(model, **local))[0]
    size: Any = found.get("crop_size") or found.get("size") or getattr(config, "image_size", SIDE)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or SIDE
    usual = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return int(size), found.get("image_mean", usual[0]), found.get("image_std", usual[1])


def _scale_pixels(
    torch: ModuleType,
    images: NDArray[np.uint8],
    mean: Sequence[float],
    deviation: Sequence[float],
    place: str,
) -> Any:
    """Standardized pixels on the device; they are moved as bytes."""
    shift, scale = (
        torch.tensor(value, device=place).reshape(1, 3, 1, 1) for value in (mean, deviation)
    )
    return (torch.from_numpy(np.ascontiguousarray(images)).to(place).float() / 255 - shift) / scale


def _pool_image_outputs(found: Any) -> Any:
    """``(b, d)`` from what a model of images returns."""
    pooled = getattr(found, "pooler_output", None)
    rows = found if pooled is None and hasattr(found, "ndim") else pooled
    if rows is None:
        rows = found.last_hidden_state
        if rows.ndim == 3:
            rows = rows[:, 0]
    return rows.mean(dim=(2, 3)) if rows.ndim == 4 else rows
