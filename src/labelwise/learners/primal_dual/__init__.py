"""Training under one constraint per item: its dual variables, and what is predicted from them."""

from labelwise.learners.primal_dual.learner import PrimalDualLearner

__all__ = ["PrimalDualLearner"]
