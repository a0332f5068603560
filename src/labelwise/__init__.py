"""Choose which items of a large unlabelled pool to label, and how much each should weigh."""

import importlib
import logging
from typing import Any

from labelwise.errors import (
    BadInput,
    Conflict,
    LabelwiseError,
    LabelwiseWarning,
    MissingDependency,
    StorageFailed,
    UnknownName,
)
from labelwise.learner import Learner
from labelwise.pool.blocks import LocalShards, Shard, Shards
from labelwise.pool.pool import Pool
from labelwise.pool.rows import Rows
from labelwise.selection.request import score, select
from labelwise.selection.result import Selection
from labelwise.strategies import strategies
from labelwise.strategy import Choice, GreedyStrategy, PassStrategy, ScoreStrategy, Strategy

logging.getLogger("labelwise").addHandler(logging.NullHandler())

_LATER = {
    "Campaign": "campaign.campaign",
    "Committee": "learners.committee",
    "DropoutMembers": "learners.members",
    "EnsembleLearner": "learners.ensemble",
    "HuggingFaceClassifier": "learners.hugging_face",
    "LaplaceMembers": "learners.members",
    "LinearProbe": "learners.linear_probe",
    "NeuronLearner": "learners.neuron",
    "PrimalDualLearner": "learners.primal_dual",
    "SklearnLearner": "learners.sklearn_learner",
    "SkorchLearner": "learners.skorch_learner",
    "SnapshotMembers": "learners.members",
    "TorchLearner": "learners.torch_learner",
    "VariationalMembers": "learners.members",
    "encode": "encoders.encoding",
    "load_model": "campaign.trained_model",
    "open_storage": "record",
    "represent": "learners.network_reader",
}
"""The modules by what they give; imported when asked for."""

_EXTRAS = {
    "Campaign": "web",
    "HuggingFaceClassifier": "huggingface",
    "SklearnLearner": "sklearn",
    "SkorchLearner": "skorch",
    "encode": "encoders",
    "load_model": "web",
    "open_storage": "web",
}
"""The extras that bring what these need; the others need torch."""

__all__ = [
    "BadInput",
    "Campaign",
    "Choice",
    "Committee",
    "Conflict",
    "DropoutMembers",
    "EnsembleLearner",
    "GreedyStrategy",
    "HuggingFaceClassifier",
    "LabelwiseError",
    "LabelwiseWarning",
    "LaplaceMembers",
    "Learner",
    "LinearProbe",
    "LocalShards",
    "MissingDependency",
    "NeuronLearner",
    "PassStrategy",
    "Pool",
    "PrimalDualLearner",
    "Rows",
    "ScoreStrategy",
    "Selection",
    "Shard",
    "Shards",
    "SklearnLearner",
    "SkorchLearner",
    "SnapshotMembers",
    "StorageFailed",
    "Strategy",
    "TorchLearner",
    "UnknownName",
    "VariationalMembers",
    "encode",
    "load_model",
    "open_storage",
    "represent",
    "score",
    "select",
    "strategies",
]


def __dir__() -> list[str]:
    """The public names, also those that are imported on first use."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a learner on first use: torch takes two seconds, and may be missing."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("labelwise")
    if name not in _LATER:
        raise AttributeError(f"labelwise has no {name!r}")
    home = f"{__name__}.{_LATER[name]}"
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == __name__:
            raise
        extra = _EXTRAS.get(name, "torch")
        raise MissingDependency(
            f"{name} needs the package {error.name}; run pip install 'labelwise[{extra}]'"
        ) from error
