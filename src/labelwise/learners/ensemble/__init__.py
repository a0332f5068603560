"""Deep ensembles: several networks as one learner, trained side by side where they can be."""

from labelwise.learners.ensemble.learner import (
    EnsembleLearner,
    EnsembleModule,
    mean_outputs,
    member_seeds,
)

__all__ = ["EnsembleLearner", "EnsembleModule", "mean_outputs", "member_seeds"]
