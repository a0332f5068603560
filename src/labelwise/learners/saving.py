"""A trained module on disk: safetensors and JSON, never a pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from labelwise.errors import BadInput

FORMAT = 1
TENSORS, FACTS = "tensors.safetensors", "learner.json"


def save_learner(
    folder: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write tensors and facts to a folder, each file whole or not at all.

    Args:
        folder: made if it is not there.
        tensors: by name.
        facts: what JSON can hold.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # Tensors that share memory, as tied weights do, are stored as tensors of their own.
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    partial = path / f".{TENSORS}.partial"
    save_file(own, partial)
    partial.replace(path / TENSORS)
    text = json.dumps({"format": FORMAT, **facts}, indent=1) + "\n"
    partial = path / f".{FACTS}.partial"
    partial.write_text(text)
    partial.replace(path / FACTS)


def load_learner(folder: str | Path, learner: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts that a learner of this kind saved."""
    path = Path(folder)
    if not (path / FACTS).exists():
        raise BadInput(f"there is no saved learner in {path}: no file {FACTS}")
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
    """The tensors whose names begin with ``prefix``, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
