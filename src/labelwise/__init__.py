"""Choose which items of a large unlabelled pool to label, and how much each should weigh."""

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

__all__ = [
    "BadInput",
    "Choice",
    "GreedyStrategy",
    "LabelwiseError",
    "LabelwiseWarning",
    "Learner",
    "LocalShards",
    "MissingDependency",
    "PassStrategy",
    "Pool",
    "Rows",
    "ScoreStrategy",
    "Selection",
    "Shard",
    "Shards",
    "Strategy",
    "UnknownName",
    "select",
    "strategies",
]
