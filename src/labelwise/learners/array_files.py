"""Save and load models as .npz and JSON, never as pickles; needs no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.errors import BadInput
from labelwise.files import ARRAY_ERRORS, write_atomically, write_json

FORMAT = 1
ARRAYS, FACTS = "arrays.npz", "learner.json"


def save_arrays(
    folder: str | Path, learner: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> None:
    """Write arrays and JSON values to a folder, each file atomically."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with write_atomically(path / ARRAYS) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    write_json(path / FACTS, {"format": FORMAT, "learner": learner, **facts}, indent=1)


def load_arrays(folder: str | Path, learner: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what a learner of this class saved."""
    path = Path(folder)
    facts = read_facts(path, learner)
    try:
        with np.load(path / ARRAYS, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}, facts
    except ARRAY_ERRORS as error:
        raise BadInput(
            f"{path / ARRAYS} cannot be read ({error}); save the learner again"
        ) from error


def read_facts(folder: str | Path, learner: str | None = None) -> dict[str, Any]:
    """The JSON values of a saved learner, of the class ``learner`` if it is given."""
    path = Path(folder) / FACTS
    if not path.exists():
        raise BadInput(f"{Path(folder)} has no saved learner: {FACTS} is missing")
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise BadInput(f"{path} is not JSON; save the learner again") from error
    known = facts.get("format") == FORMAT and facts.get("learner") == learner
    if learner is not None and not known:
        raise BadInput(
            f"{folder} holds a {facts.get('learner')} of format {facts.get('format')}; this is a "
            f"{learner} of format {FORMAT}"
        )
    return facts
