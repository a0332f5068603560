"""Teacher and student: gradients, the fit and its risk against slow versions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, check_grad

from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocol import Entrant, change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.studies.network import (
    StudentProblem,
    evaluate_student,
    make_student_problem,
    study_network,
)

SMALL = change_protocol(
    get_experiment("bss-teacher-student"),
    settings={
        **get_experiment("bss-teacher-student").settings,
        "items": 120,
        "hidden": 4,
        "budgets": (2, 6),
    },
)


def test_gradients_are_those_of_the_student():
    problem = make_student_problem(SMALL, 0)
    rows = problem.compute_gradients()
    assert rows.shape == (120, 4 * 5)
    for item in (0, 17):

        def output(flat, item=item):
            shaped = flat.reshape(problem.first.shape)
            return evaluate_student(shaped, problem.signs, problem.inputs[item : item + 1])[0]

        wrong = check_grad(output, lambda _, item=item: rows[item], problem.first.ravel())
        assert wrong < 1e-6


def test_a_student_finds_a_teacher_of_its_own_form_without_noise():
    problem = make_student_problem(SMALL, 1)
    truth = problem.first + 0.3 * np.random.default_rng(0).normal(size=problem.first.shape)
    exact = StudentProblem(
        problem.inputs,
        evaluate_student(truth, problem.signs, problem.inputs),
        problem.first,
        problem.signs,
        pull=0.0,
    )
    every = np.arange(120)
    found = exact.fit(every, np.ones(120))
    assert exact.measure_risk(found) < 1e-4 * exact.measure_risk(exact.first)


def test_a_weight_of_two_is_the_item_twice():
    problem = replace(make_student_problem(SMALL, 2), pull=0.0)
    ids, weights = np.arange(60), np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = np.concatenate([ids, ids[:20]])
    first, second = problem.fit(ids, weights), problem.fit(twice, np.ones(80))
    assert problem.measure_risk(first) == pytest.approx(problem.measure_risk(second), rel=1e-3)


@pytest.mark.parametrize("count", [10, 40, 120])
def test_a_training_ends_where_its_loss_is_level(count):
    # Elsewhere, a difference in the last digit would change the result.
    problem = make_student_problem(SMALL, 3)
    ids, weights = np.arange(count), np.random.default_rng(3).uniform(0.1, 5, size=count)

    def loss(flat):
        outputs = evaluate_student(
            flat.reshape(problem.first.shape), problem.signs, problem.inputs[ids]
        )
        squares = (outputs - problem.values[ids]) ** 2 / problem.values.var()
        pull = problem.pull / count * np.sum((flat - problem.first.ravel()) ** 2)
        return weights @ squares / weights.sum() + pull

    start, end = problem.first.ravel(), problem.fit(ids, weights).ravel()
    slopes = [np.linalg.norm(approx_fprime(flat, loss)) for flat in (start, end)]
    assert slopes[1] < 1e-5 < 1e-2 < slopes[0]
    assert loss(end) < loss(start)


def test_all_labels_leave_no_excess_risk_and_few_leave_much():
    every = change_protocol(SMALL, settings={**SMALL.settings, "budgets": (2, 6)})
    values = dict(study_network(every, Entrant("random"), 0, find_benchmark_device("cpu")))
    assert list(values) == [40, 120]
    assert values[120] == pytest.approx(0.0, abs=1e-9)
    assert values[40] > 0.01


def test_inputs_are_no_longer_than_one_and_few_are_long():
    lengths = np.linalg.norm(
        make_student_problem(get_experiment("bss-teacher-student"), 0).inputs, axis=1
    )
    assert lengths.max() <= 1 + 1e-12
    assert 0.001 < (lengths > 0.9).mean() < 0.1
