"""What learning curves show, and how sure that is.

A curve is a metric over the number of labels, one per strategy and seed. Runs are paired: a seed
fixes the first labels, the initial weights and the split for all strategies, so two strategies
are compared by their differences under the same seed, and a bootstrap draws seeds and takes the
runs of all strategies under a drawn seed together.
"""

from labelwise.benchmark.statistics.differences import (
    Difference,
    holm,
    paired_difference,
    sign_flip_test,
    t_test,
)
from labelwise.benchmark.statistics.intervals import (
    Estimate,
    bootstrap,
    mean_estimate,
    resamples,
    tail,
)
from labelwise.benchmark.statistics.measures import (
    area,
    label_saving,
    labels_needed,
    saving_target,
)
from labelwise.benchmark.statistics.rankings import Ranks, mean_ranks, win_matrix

__all__ = [
    "Difference",
    "Estimate",
    "Ranks",
    "area",
    "bootstrap",
    "holm",
    "label_saving",
    "labels_needed",
    "mean_estimate",
    "mean_ranks",
    "paired_difference",
    "resamples",
    "saving_target",
    "sign_flip_test",
    "t_test",
    "tail",
    "win_matrix",
]
