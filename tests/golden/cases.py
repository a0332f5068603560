"""Small pools and the calls of `labelwise.select` whose picks are stored in picks.json.

The pools come from a seeded generator and elementwise operations only, rounded to a few digits,
so that every machine makes the same ones.
"""

import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import labelwise

SEEDS = (0, 7)
MEMBERS = 12
ALWAYS_LISTS = {
    ("committee", ("probabilities",)),
    ("committee", ("outputs",)),
    ("dynamics", ("features", "outputs")),
}
"""Strategies that compare models, with the representations that must be lists."""
LISTS = {("features",), ("probabilities",), ("outputs",), ("features", "outputs")}
"""Representations whose last one may be a list, one array per model."""


@dataclass(frozen=True)
class PoolSpec:
    """A pool: its shape, the kind of its features and the number of labelled items."""

    rows: int
    columns: int
    classes: int
    budget: int
    kind: str = "clusters"
    dtype: str = "float64"
    labelled: int = 0
    find_item_ids: bool = False
    models: int = 1
    variants: bool = False


POOLS = {
    "clusters": PoolSpec(300, 6, 3, 10),
    "clusters_labelled": PoolSpec(300, 6, 3, 10, labelled=12),
    "clusters_float32": PoolSpec(280, 5, 4, 9, dtype="float32"),
    "own_ids_float32": PoolSpec(280, 5, 4, 9, dtype="float32", labelled=8, find_item_ids=True),
    "blocks": PoolSpec(600, 8, 5, 12, variants=True),
    "blocks_labelled_float32": PoolSpec(
        600, 8, 5, 12, dtype="float32", labelled=20, find_item_ids=True, variants=True
    ),
    "long_tail": PoolSpec(250, 7, 10, 14, kind="long_tail", labelled=5),
    "duplicates": PoolSpec(200, 6, 3, 10, kind="duplicates"),
    "wide": PoolSpec(40, 60, 2, 6, kind="normal"),
    "sparse_float32": PoolSpec(300, 16, 4, 10, kind="sparse", dtype="float32", labelled=10),
    "offset": PoolSpec(260, 4, 3, 25, kind="offset", labelled=3),
    "models": PoolSpec(520, 5, 3, 11, models=3, variants=True),
    "models_labelled_float32": PoolSpec(
        520, 6, 4, 11, dtype="float32", labelled=15, models=2, variants=True
    ),
}

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ally": [{"diversity": d} for d in ("k_center", "kmeans++", "noise", "none")],
    "bait": [{"ridge": 0.1}, {"candidates": 60}],
    "bandit": [
        {"arms": ("margin", "kmeans")},
        {"rounds": [{"arm": "k_center", "probability": 0.5, "reward": 0.9}], "delta": 0.2},
    ],
    "batchbald": [{"configurations": 100}],
    "bayesian_coreset": [{"entropy_weight": 0.5}],
    "bss": [
        {"basis": "polynomial"},
        {"basis": "fourier"},
        {"basis": "polynomial", "bias": False},
    ],
    "committee": [{"disagreement": "vote_entropy"}],
    "design": [{"regularisation": 0.5}],
    "disagreement": [{"candidates": 1}],
    "dynamics": [{"gamma": 0.0}],
    "herding": [{"bandwidth": 2.0}, {"references": 100}],
    "kmeans": [{"rounds": 0}],
    "lewis": [{"p": 1.0}, {"p": 1.5, "sampling": "poisson"}],
    "sparse_greedy": [
        {"gain": "exact"},
        {"relative_alpha": 0.5, "polish": False},
        {"label_law": "label_smoothing", "temperature": 2.0},
    ],
    "sparse_iht": [
        {"iterations": 5, "compare_with_greedy": False},
        {"relative_alpha": 0.5, "polish": False},
    ],
    "typiclust": [{"clusters": 5, "neighbours": 7}],
}
"""Options other than the defaults, tried on the first two pools."""


@dataclass(frozen=True)
class Case:
    """One call: a strategy, the representations it gets, a pool, options and a seed."""

    strategy: str
    names: tuple[str, ...]
    pool: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the case in picks.json."""
        parts = [self.strategy, "+".join(self.names), self.pool, f"seed={self.seed}"]
        return " ".join([*parts, *(f"{name}={value}" for name, value in self.options.items())])


def list_cases() -> Iterator[Case]:
    """All cases, of every strategy found."""
    for name, strategy in labelwise.strategies().items():
        sets = (strategy.needs or ("features",), *strategy.or_needs)
        for pool in POOLS:
            for names in sets:
                for seed in SEEDS:
                    yield Case(name, names, pool, seed)
        for pool in list(POOLS)[:2]:
            for options in OPTIONS.get(name, []):
                yield Case(name, sets[0], pool, 3, options)


def make_arguments(case: Case, salt: int, noise: float = 0.0, trial: int = 0) -> dict[str, Any]:
    """The keyword arguments of `labelwise.select` for a case.

    Args:
        case: the case.
        salt: number of the pool among those of the same kind.
        noise: relative size of a disturbance of all values, to find picks that hang by a hair.
        trial: number of the disturbance.
    """
    spec = POOLS[case.pool]
    arguments: dict[str, Any] = {}
    strategy = labelwise.strategies()[case.strategy]
    for name in case.names:
        count = spec.models if strategy.several and case.names in LISTS else 1
        if (case.strategy, case.names) in ALWAYS_LISTS:
            count = max(count, 2)
        listed = count > 1 and name == case.names[-1]
        arrays = [
            _make_rows(spec, case.pool, name, salt, model, noise, trial)
            for model in range(count if listed else 1)
        ]
        arguments[name] = arrays if listed else arrays[0]
    ids = np.arange(spec.rows)
    if spec.find_item_ids:
        ids = _generator(case.pool, "ids", salt).permutation(spec.rows) * 3 + 100
        arguments["ids"] = ids
    if spec.labelled:
        arguments["labelled"] = ids[5 :: spec.rows // spec.labelled][: spec.labelled]
        if case.strategy == "dynamics" and "gamma" not in case.options:
            if "probabilities" in case.names:
                arguments["labels"] = np.arange(len(arguments["labelled"])) % spec.classes
            elif "outputs" in case.names:
                arguments["labels"] = np.arange(2 * len(arguments["labelled"])).reshape(-1, 2) / 7
            elif "gradient_products" not in case.names:
                arguments["gamma"] = 0.0
    elif case.names == ("gradient_norms",):
        arguments["gamma"] = 0.0
    return arguments | case.options


def run_case(case: Case, arguments: dict[str, Any]) -> labelwise.Selection:
    """Select, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labelwise.LabelwiseWarning)
        budget = POOLS[case.pool].budget
        return labelwise.select(case.strategy, budget, **arguments, seed=case.seed)


def _generator(*parts: Any) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(str(part).encode()) for part in parts])


def _make_rows(
    spec: PoolSpec, pool: str, name: str, salt: int, model: int, noise: float, trial: int
) -> Any:
    rows = _exact_rows(spec, name, _generator(pool, name, salt, model))
    if rows.dtype.kind == "f":
        generator = _generator("noise", trial, pool, name, salt, model)
        rows = rows * (1 + noise * generator.uniform(-1, 1, rows.shape))
        if "probabilities" in name and noise:
            rows = rows / rows.sum(axis=-1, keepdims=True)
    if spec.kind == "duplicates":
        rows[120:140] = rows[:20]
        rows[199] = rows[0]
        if name == "features":
            rows[:, 2] = 1.5
    return rows.astype(spec.dtype) if rows.dtype.kind == "f" else rows


def _exact_rows(spec: PoolSpec, name: str, generator: np.random.Generator) -> Any:
    n = spec.rows
    if name in ("features", "gradient_sketch"):
        return np.round(_features(spec, generator), 4)
    if name == "probabilities":
        return _probabilities(generator, (n, spec.classes))
    if name == "member_probabilities":
        base = generator.gamma(0.6, size=(n, 1, spec.classes))
        spread = generator.gamma(2.0, size=(n, MEMBERS, spec.classes))
        return _normalise(base * spread)
    if name == "member_votes":
        votes = generator.integers(spec.classes, size=(n, MEMBERS))
        share = generator.random((n, 1))
        return np.where(generator.random((n, MEMBERS)) < share, votes[:, :1], votes)
    if name == "logits":
        return np.round(2 * generator.normal(size=(n, spec.classes)), 4)
    if name == "outputs":
        return np.round(generator.normal(size=(n, 2)), 4)
    values = np.round(generator.normal(size=n), 5)
    return values if name == "gradient_products" else np.abs(values) + 0.001


def _features(spec: PoolSpec, generator: np.random.Generator) -> Any:
    shape = (spec.rows, spec.columns)
    centres = 2 * generator.normal(size=(5, spec.columns))
    rows = generator.normal(size=shape)
    if spec.kind == "normal":
        return rows
    rows += centres[generator.integers(5, size=spec.rows)]
    if spec.kind == "long_tail":
        rows *= (1 + generator.pareto(2.0, size=spec.rows))[:, None]
    if spec.kind == "sparse":
        rows = np.maximum(rows - 0.5, 0)
    if spec.kind == "offset":
        rows += 30
    return rows


def _probabilities(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return _normalise(generator.gamma(0.6, size=shape))


def _normalise(values: Any) -> Any:
    counts = np.floor(values * 10_000) + 1
    return counts / counts.sum(axis=-1, keepdims=True)
