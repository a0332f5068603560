"""Choose which items of a large unlabelled pool to label, and how much each should weigh."""

import importlib
from typing import Any

from labelwise.blocks import LocalShards, Rows, Shard, Shards
from labelwise.errors import (
    BadInput,
    LabelwiseError,
    LabelwiseWarning,
    MissingDependency,
    UnknownName,
)
from labelwise.learner import Learner
from labelwise.pool import Pool
from labelwise.running.entry import select
from labelwise.selection import Selection
from labelwise.strategies import strategies
from labelwise.strategy import Choice, GreedyStrategy, PassStrategy, ScoreStrategy, Strategy

_LEARNERS = {
    "Committee": "committee",
    "DropoutMembers": "dropout",
    "EnsembleLearner": "ensemble",
    "HuggingFaceClassifier": "hugging_face",
    "LaplaceMembers": "laplace",
    "NeuronLearner": "neuron",
    "PrimalDualLearner": "primal_dual",
    "SklearnLearner": "sklearn_learner",
    "SkorchLearner": "skorch_learner",
    "SnapshotMembers": "snapshots",
    "TorchLearner": "torch_learner",
    "VariationalMembers": "variational",
}
"""The modules of labelwise.learners by what they give; imported when asked for."""

__all__ = [
    "BadInput",
    "Choice",
    "Committee",
    "DropoutMembers",
    "EnsembleLearner",
    "GreedyStrategy",
    "HuggingFaceClassifier",
    "LabelwiseError",
    "LabelwiseWarning",
    "LaplaceMembers",
    "Learner",
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
    "Strategy",
    "TorchLearner",
    "UnknownName",
    "VariationalMembers",
    "select",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Import a learner when it is asked for: torch takes two seconds, and may not be there."""
    if name not in _LEARNERS:
        raise AttributeError(f"labelwise has no {name!r}")
    home = f"{__name__}.learners.{_LEARNERS[name]}"
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == __name__:
            raise
        raise MissingDependency(
            f"{name} needs the package {error.name}; install labelwise with its extra, "
            "as pip install 'labelwise[torch]'"
        ) from error
