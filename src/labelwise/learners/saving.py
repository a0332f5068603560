"""Save and load trained modules as safetensors and JSON, never as pickles."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from labelwise.errors import BadInput
from labelwise.files import write_atomically, write_json
from labelwise.learners.array_files import FACTS, FORMAT, read_facts

TENSORS = "tensors.safetensors"


def save_learner(
    folder: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write tensors and JSON values to a folder, each file atomically."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # safetensors rejects tensors that share memory, such as tied weights: store copies.
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    with write_atomically(path / TENSORS) as part:
        save_file(own, part)
    write_json(path / FACTS, {"format": FORMAT, **facts}, indent=1)


def load_learner(folder: str | Path, learner: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata saved by a learner of this class."""
    path = Path(folder)
    facts = read_facts(path, learner)
    try:
        return load_file(path / TENSORS), facts
    except (OSError, SafetensorError) as error:
        raise BadInput(
            f"{path / TENSORS} cannot be read ({error}); save the learner again"
        ) from error


def strip_tensor_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names start with ``prefix``, with the prefix removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
