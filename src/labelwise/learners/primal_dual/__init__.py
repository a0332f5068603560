"""Training under one constraint per item, and the prediction of its dual variables."""

from labelwise.learners.primal_dual.learner import PrimalDualLearner

__all__ = ["PrimalDualLearner"]
