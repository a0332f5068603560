"""Save and load trained modules as safetensors and JSON, never as pickles."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from labelwise.errors import BadInput
from labelwise.files import write_atomically, write_json

FORMAT = 1
TENSORS, FACTS = "tensors.safetensors", "learner.json"


def save_learner(
    folder: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write tensors and metadata to a folder, each file atomically.

    Args:
        folder: created if needed.
        tensors: by name.
        facts: JSON values.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # Tensors that share memory, as tied weights do, are stored as tensors of their own.
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    with write_atomically(path / TENSORS) as part:
        save_file(own, part)
    write_json(path / FACTS, {"format": FORMAT, **facts}, indent=1)


def load_learner(folder: str | Path, learner: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata saved by a learner of this class."""
    path = Path(folder)
    if not (path / FACTS).exists():
        raise BadInput(f"{path} has no saved learner: {FACTS} is missing")
    try:
        facts: dict[str, Any] = json.loads((path / FACTS).read_text())
    except ValueError as error:
        raise BadInput(f"{path / FACTS} is not JSON; save the learner again") from error
    if facts.get("format") != FORMAT or facts.get("learner") != learner:
        raise BadInput(
            f"{path} holds a {facts.get('learner')} of format {facts.get('format')}; this is a "
            f"{learner} of format {FORMAT}"
        )
    try:
        return load_file(path / TENSORS), facts
    except (OSError, SafetensorError) as error:
        raise BadInput(
            f"{path / TENSORS} cannot be read ({error}); save the learner again"
        ) from error


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names start with ``prefix``, with the prefix removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
