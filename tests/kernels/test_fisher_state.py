"""What blocks keep for BAIT against matrices multiplied out."""

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.kernels.information.fisher import (
    KEY,
    ROUNDED,
    FisherPlan,
    InverseUpdate,
    find_best_fisher_candidate,
    fisher_roots,
    start_fisher_candidates,
    sum_fisher_information,
)
from labelwise.pool.blocks import Shard, drop_state
from tests.conftest import make_features, make_probabilities

PLAN = FisherPlan(regression=False, classes=3, dimension=4, scale=0.5)


def make_block(n=12):
    rows = {"features": make_features(n, 4), "probabilities": make_probabilities(n, 3)}
    return Shard(100 + np.arange(n), rows), fisher_roots(rows["features"], rows["probabilities"])


@pytest.mark.parametrize("unit", [1.0, 2.0**40])
def test_the_information_of_a_block_is_the_sum_over_its_items(unit):
    shard, roots = make_block()
    expected = unit**2 * np.einsum("nki,nkj->ij", roots, roots)
    np.testing.assert_allclose(sum_fisher_information(shard, PLAN._replace(unit=unit)), expected)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_best_candidate_is_that_of_the_formula(sign):
    shard, roots = make_block()
    roots = 0.5 * roots
    inverse = np.linalg.inv(10 * np.eye(12) + np.einsum("nki,nkj->ij", roots, roots))
    outer = inverse @ np.diag(np.arange(1.0, 13.0)) @ inverse
    start_fisher_candidates(shard, PLAN, inverse, outer, shard.ids[2:])
    worth = [
        np.trace(np.linalg.solve(np.eye(3) - sign * v @ inverse @ v.T, v @ outer @ v.T))
        for v in roots[2:]
    ]
    found = find_best_fisher_candidate(shard, PLAN, None, sign)
    assert found.item == shard.ids[2:][np.argmax(-sign * np.array(worth))]
    assert found.worth == pytest.approx(max(worth) if sign < 0 else min(worth), rel=1e-8)
    assert found.size == pytest.approx(max(np.trace(v @ outer @ v.T) for v in roots[2:]))
    drop_state(shard, KEY)
    assert KEY not in shard.state


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_after_an_update_the_best_candidate_is_that_of_the_new_inverse(sign, projected):
    shard, _ = make_block(40)
    features, basis = shard.rows["features"], np.linalg.qr(make_features(4, 2))[0]
    features = features @ basis if projected else features
    plan = PLAN._replace(dimension=features.shape[1], directions=basis if projected else None)
    roots = 0.5 * fisher_roots(features, shard.rows["probabilities"])
    size = roots.shape[2]
    fisher = np.diag(np.arange(1.0, size + 1))
    information = 3 * np.eye(size) + np.einsum("nki,nkj->ij", roots[:10], roots[:10])
    inverse = np.linalg.inv(information)
    start_fisher_candidates(shard, plan, inverse, inverse @ fisher @ inverse, shard.ids)
    moved = information - sign * roots[4].T @ roots[4]
    after = np.linalg.inv(moved)
    values, vectors = np.linalg.eigh(sign * (after - inverse))
    root = vectors[:, -3:] * np.sqrt(np.maximum(values[-3:], 0))
    image = inverse @ fisher @ root
    update = InverseUpdate(104, sign, root, image, root.T @ fisher @ root)
    outer = after @ fisher @ after
    worth = np.array(
        [
            np.trace(np.linalg.solve(np.eye(3) - sign * v @ after @ v.T, v @ outer @ v.T))
            for v in roots
        ]
    )
    worth[4] = sign * np.inf
    found = find_best_fisher_candidate(shard, plan, update, sign)
    assert found.item == shard.ids[np.argmax(-sign * worth)]
    assert found.worth == pytest.approx(-sign * np.max(-sign * worth), rel=1e-7)


def test_a_block_without_candidates_has_no_best():
    shard, _ = make_block(1)
    start_fisher_candidates(shard, PLAN, np.eye(12), np.eye(12), shard.ids)
    nothing = InverseUpdate(100, -1, np.zeros((12, 3)), np.zeros((12, 3)), np.zeros((3, 3)))
    assert find_best_fisher_candidate(shard, PLAN, nothing, -1) is None


def test_what_cannot_be_solved_for_is_refused():
    shard = Shard(np.arange(1), {"features": np.ones((1, 1))})
    plan = FisherPlan(regression=True, classes=1, dimension=1, scale=1.0)
    start_fisher_candidates(shard, plan, np.eye(1), np.eye(1), shard.ids)
    with pytest.raises(BadInput, match=ROUNDED):
        find_best_fisher_candidate(shard, plan, None, 1)
