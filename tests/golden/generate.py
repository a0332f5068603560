"""Write picks.json: the picks of every case, by the version of labelwise that is imported.

Run as ``python -m tests.golden.generate``, with that version on PYTHONPATH. A case is kept with
the first pool whose picks stay the same when all values are disturbed by far more than rounding;
so the picks are the same on every CPU. Existing entries stay unless ``--all`` is given.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import labelwise
from tests.golden.cases import POOLS, Case, list_cases, make_arguments, run_case

PATH = Path(__file__).parent / "picks.json"
NOISE = {"float64": 1e-7, "float32": 2e-5}
"""Relative disturbance by precision."""
WEIGHTS = {"float64": 1e-4, "float32": 5e-3}
"""How far weights may move under it."""
POOLS_TRIED = 40


def main() -> None:
    """Add what is missing."""
    known = {} if "--all" in sys.argv or not PATH.exists() else json.loads(PATH.read_text())
    found, refused, unstable = {}, Counter(), []
    for case in list_cases():
        if case.key in known:
            found[case.key] = known[case.key]
            continue
        try:
            entry = _first_stable(case)
        except labelwise.LabelwiseError as error:
            refused[f"{case.strategy} {case.names} {case.options}: {error}"] += 1
            continue
        if entry is None:
            unstable.append(case.key)
        else:
            found[case.key] = entry
    lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in found.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} cases by labelwise from {Path(labelwise.__file__).parent}")
    print("refused:", *(f"{count} x {what}" for what, count in refused.items()), sep="\n  ")
    print("hanging by a hair:", *unstable, sep="\n  ")


def _first_stable(case: Case) -> dict[str, object] | None:
    dtype = POOLS[case.pool].dtype
    for salt in range(POOLS_TRIED):
        plain = run_case(case, make_arguments(case, salt))
        if all(
            _agree(plain, run_case(case, make_arguments(case, salt, NOISE[dtype], trial)), dtype)
            for trial in range(6)
        ):
            entry: dict[str, object] = {"salt": salt, "ids": plain.ids.tolist()}
            if plain.weights is not None:
                entry["weights"] = [float(f"{weight:.9g}") for weight in plain.weights]
            return entry
    return None


def _agree(one: labelwise.Selection, other: labelwise.Selection, dtype: str) -> bool:
    if one.ids.tolist() != other.ids.tolist():
        return False
    if one.weights is None or other.weights is None:
        return one.weights is other.weights
    scale = WEIGHTS[dtype] * float(np.abs(one.weights).max())
    return bool((np.abs(one.weights - other.weights) <= scale).all())


if __name__ == "__main__":
    main()
