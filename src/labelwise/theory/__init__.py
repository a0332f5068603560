"""The papers' theory as tools: how many labels a pool needs, and how good a selection is."""

import importlib

_HOMES = {
    "Agreement": "dynamics",
    "Budget": "budgets",
    "Discrepancy": "mmd",
    "Distortion": "spectrum",
    "Explanation": "explanations",
    "Finding": "explanations",
    "ModelPlan": "planning",
    "NearOrthonormality": "spectrum",
    "Plan": "planning",
    "Spectrum": "spectrum",
    "alignment": "dynamics",
    "approximation_ratio": "dynamics",
    "approximation_ratio_of_gram": "dynamics",
    "class_counts": "coverage",
    "convergence_bounds": "alignment_bounds",
    "convergence_error": "alignment_bounds",
    "describe_plan": "planning",
    "dynamics_agreement": "dynamics",
    "effective_dimension": "planning",
    "embedding_distortion": "spectrum",
    "explain": "explanations",
    "generalisation_bound": "alignment_bounds",
    "generalisation_bounds": "alignment_bounds",
    "imbalance_ratio": "coverage",
    "label_budgets": "budgets",
    "last_layer_kernel": "dynamics",
    "model_coverage": "coverage",
    "near_orthonormality": "spectrum",
    "plan": "planning",
    "plan_figure": "plots",
    "pool_mmd": "mmd",
    "pool_size": "budgets",
    "subset_mmd": "mmd",
    "training_dynamics": "dynamics",
    "weighted_spectrum": "spectrum",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a tool on first use: importing SciPy takes half a second.

    >>> import labelwise.theory
    >>> labelwise.theory.imbalance_ratio([0, 0, 1])
    2.0
    """
    if name not in _HOMES:
        raise AttributeError(f"labelwise.theory has no {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
