"""Strategies reject options, budgets and inputs that do not fit before any row is read."""

import numpy as np
import pytest

import labelwise
from labelwise.errors import BadInput, UnknownName
from labelwise.strategies import get
from labelwise.strategy import Job

SHAPES = {
    "gradient_sketch": ((512,),),
    "features": ((4,),),
    "probabilities": ((3,),),
    "logits": ((3,),),
    "member_probabilities": ((5, 3),),
    "member_votes": ((5,),),
    "duals": ((),),
    "gradient_norms": ((),),
    "gradient_products": ((),),
}
LAST_LAYER = {"features": ((4,),), "probabilities": ((3,),)}
REGRESSION = {"features": ((4,),), "outputs": ((2,), (2,))}
WHOLE_NUMBERS = [
    ("ally", "clusters"),
    ("ally", "rounds"),
    ("ally", "candidates"),
    ("batchbald", "configurations"),
    ("disagreement", "candidates"),
    ("herding", "references"),
    ("kmeans", "rounds"),
    ("sparse_greedy", "debias_steps"),
    ("sparse_iht", "debias_steps"),
    ("sparse_iht", "iterations"),
    ("typiclust", "clusters"),
    ("typiclust", "neighbours"),
]
POSITIVE = [
    ("bait", "ridge"),
    ("design", "regularisation"),
    ("herding", "bandwidth"),
    ("sparse_greedy", "tau"),
    ("sparse_greedy", "temperature"),
    ("sparse_iht", "temperature"),
]
CHOICES = [
    ("bait", "task", {}),
    ("bss", "mode", {}),
    ("bss", "basis", {}),
    ("committee", "disagreement", {}),
    ("dynamics", "pseudo", {"gamma": 0}),
    ("lewis", "sampling", {}),
    ("sparse_greedy", "gain", {}),
    ("sparse_greedy", "label_law", {}),
    ("sparse_greedy", "sigma_scale", {}),
]


def check(name, *, budget=3, labelled=0, shapes=None, **options):
    strategy = get(name).with_options(**options)
    needed = {key: SHAPES[key] for key in strategy.needs}
    given = needed if shapes is None else shapes
    if strategy.check is not None:
        strategy.check(Job(30, budget, given, strategy.options, labelled=labelled))


@pytest.mark.parametrize("name", labelwise.strategies())
def test_every_strategy_accepts_its_own_options(name):
    check(name)


@pytest.mark.parametrize(("name", "option"), WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [-1, 2.5, True, "3"])
def test_options_that_count_something_take_whole_numbers_only(name, option, value):
    with pytest.raises(BadInput, match=f"{option} must be a whole number.*; got {value!r}"):
        check(name, **{option: value})


@pytest.mark.parametrize(("name", "option"), POSITIVE)
@pytest.mark.parametrize("value", [0.0, -2.0, float("nan"), float("inf")])
def test_options_that_measure_something_must_be_above_zero(name, option, value):
    with pytest.raises(BadInput, match=f"{option} must be a number above 0; got {value!r}"):
        check(name, **{option: value})


@pytest.mark.parametrize(("name", "option", "others"), CHOICES)
def test_an_unknown_choice_is_answered_with_the_known_ones(name, option, others):
    with pytest.raises(BadInput, match=f"{option} must be one of .*, .*; got 'other'"):
        check(name, shapes={**LAST_LAYER, "member_votes": ((5,),)}, **others, **{option: "other"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ally", {"clusters": 4}, "clusters must be from 1 to the budget, 3; got 4"),
        ("bait", {"candidates": 2}, "candidates is 2 but budget is 3"),
        ("bait", {"memory_gib": 1e-7}, "GiB for matrices of 12 rows .* or raise it"),
        ("bait", {"memory_gib": 4.1e-6}, "GiB for matrices of 12 rows"),
        ("bandit", {"arms": "random,margin", "p_min": 0.7}, "p_min must be from 0 to 1/2"),
        ("bayesian_coreset", {"entropy_weight": float("nan")}, "entropy_weight must be a finite"),
        ("bayesian_coreset", {"entropy_weight": 1e200}, "entropy_weight must be a finite number"),
        ("bss", {"bias": 1}, "bias must be True or False; got 1"),
        ("bss", {"mode": "theory", "epsilon": 2.0}, "epsilon must be above 0 and at most 1"),
        ("bss", {"mode": "theory", "epsilon": "x"}, "epsilon must be above 0 and at most 1"),
        ("bss", {"basis": "polynomial", "degree": 0}, "degree must be a whole number"),
        ("bss", {"basis": "polynomial", "degree": 90}, "lower the degree"),
        ("bss", {"basis": "fourier", "frequencies": 0}, "frequencies must be a whole number"),
        ("bss", {"basis": "fourier", "length_scale": 0}, "length_scale must be a positive number"),
        ("lewis", {"p": -1}, "p must be a number above 0; got -1"),
        ("lewis", {"p": True}, "p must be a number above 0; got True"),
        ("lewis", {"tol": "1e-3"}, "tol must be a number above 0; got '1e-3'"),
        ("lewis", {"rtol": [0.1]}, "rtol must be a number"),
        ("sparse_greedy", {"alpha": -2.0}, "alpha must be 0 or more; got -2.0"),
        ("sparse_iht", {"rho": 2.0}, "rho must be from 0 to 1; got 2.0"),
    ],
)
def test_other_options_are_checked_one_by_one(name, options, message):
    with pytest.raises(BadInput, match=message):
        check(name, **options)


def test_bait_needs_probabilities_for_classification():
    check("bait", shapes={"features": ((4,),)})
    with pytest.raises(BadInput, match="bait needs probabilities for classification"):
        check("bait", shapes={"features": ((4,),)}, task="classification")


def test_bait_counts_what_its_candidates_keep():
    with pytest.raises(BadInput, match=r"GiB to keep 30 candidates .* set candidates to fewer"):
        check("bait", shapes={"features": ((1,),), "probabilities": ((9,),)}, memory_gib=3e-5)


@pytest.mark.parametrize("name", ["outputs", "probabilities"])
def test_one_model_is_not_a_committee(name):
    check("committee", shapes={name: ((3,), (3,))})
    with pytest.raises(BadInput, match=f"committee needs the {name} of two or more models"):
        check("committee", shapes={name: ((3,),)})


def test_votes_of_one_epoch_cannot_disagree():
    with pytest.raises(BadInput, match="votes at two or more epochs"):
        check("disagreement", shapes={"member_votes": ((5,), (1,))})


def test_every_arm_of_a_bandit_is_checked_whichever_is_drawn():
    with pytest.raises(BadInput, match="bandit's arm confidence needs probabilities, or"):
        check("bandit", shapes={"features": ((4,),)})
    with pytest.raises(BadInput, match="rounds must be a whole number"):
        check("bandit", arms={"random": {}, "kmeans": {"rounds": -1}})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, BadInput, "labels of the 2 labelled items are needed; give labels in the order of"),
        ({"gamma": -1}, BadInput, "gamma must be a number from 0 to infinity; got -1"),
        ({"gamma": float("nan")}, BadInput, "gamma must be a number from 0 to infinity; got nan"),
        ({"gamma": "all"}, BadInput, "gamma must be a number from 0 to infinity; got 'all'"),
        ({"bias": 1}, BadInput, "bias must be True or False; got 1"),
        ({"redundancy": 5}, BadInput, "redundancy must be None or a mapping; got 5"),
        ({"redundancy": {"coeff": 1}}, UnknownName, "redundancy has no entry 'coeff'; choose from"),
        ({"redundancy": {"step": 0}}, BadInput, "step of redundancy must be a whole number, 1"),
        ({"redundancy": {"coef": float("inf")}}, BadInput, "coef of redundancy must be a finite"),
        ({"redundancy": {"normalize": "max"}}, BadInput, "normalize of redundancy must be one of"),
        ({"labels": [0]}, BadInput, r"labels must have shape \(2,\), one per labelled item"),
        ({"labels": [0, 3]}, BadInput, "labels must be classes, whole numbers from 0 to 2"),
        ({"labels": [0.0, 1.0]}, BadInput, "labels must be classes, .* got float64"),
    ],
)
def test_dynamics_checks_its_options_and_labels(options, error, words):
    check("dynamics", shapes=LAST_LAYER, labelled=2, labels=[2, 0])
    with pytest.raises(error, match=words):
        check("dynamics", shapes=LAST_LAYER, labelled=2, **options)


@pytest.mark.parametrize("labels", [[1.0, 2.0], np.full((2, 2), np.nan), np.ones((3, 2))])
def test_dynamics_checks_the_values_of_a_regression(labels):
    check("dynamics", shapes=REGRESSION, labelled=2, labels=np.ones((2, 2)))
    with pytest.raises(BadInput, match="labels"):
        check("dynamics", shapes=REGRESSION, labelled=2, labels=labels)


def test_one_regression_model_has_no_gradient():
    with pytest.raises(BadInput, match="zero at the model's own prediction; give outputs as"):
        check("dynamics", shapes={"features": ((4,),), "outputs": ((2,),)}, gamma=0)


@pytest.mark.parametrize(
    ("option", "value"), [("labels", [0, 1]), ("pseudo", "sample"), ("bias", True)]
)
def test_options_of_the_last_layer_are_rejected_for_a_whole_network(option, value):
    with pytest.raises(BadInput, match=f"{option} is for the last layer but gradients of the"):
        check("dynamics", labelled=2, **{option: value})


def test_redundancy_of_a_whole_network_needs_sketches():
    with pytest.raises(BadInput, match="give gradient_sketch instead"):
        check("dynamics", labelled=2, redundancy={})
    shapes = {"gradient_sketch": ((64,),), "gradient_products": ((),)}
    check("dynamics", shapes=shapes, labelled=2, redundancy={})


def test_a_selection_checks_its_strategy_before_it_reads_a_row(tmp_path):
    """A file with a broken row is not read: the option is rejected first."""
    rows = np.full((30, 2), np.nan)
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(BadInput, match="rounds must be a whole number"):
        labelwise.select("kmeans", 3, features=tmp_path / "rows.npy", rounds=-1)


def test_a_budget_of_zero_is_not_checked():
    assert len(labelwise.select("ally", 0, features=np.ones((3, 2)), duals=np.ones(3))) == 0
