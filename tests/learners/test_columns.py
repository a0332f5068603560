"""One model per representation, against models that are trained on their columns alone."""

import doctest

import numpy as np
import pytest

from labelwise.errors import BadInput
from labelwise.learners import columns as module
from labelwise.learners.columns import make_column_committee
from labelwise.learners.linear_probe import LinearProbe


def test_the_examples_of_the_docstrings_run():
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0


def test_every_model_sees_its_own_columns():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(60, 7)), np.arange(60) % 3
    seen = []

    def make(rows):
        seen.append(rows)
        return LinearProbe(classes=3)

    committee = make_column_committee(make, inputs, [4, 2, 1])
    committee.fit(inputs[:30], targets[:30], seed=5)
    found = committee.represent(inputs, ["probabilities", "features"])
    parts = (slice(0, 4), slice(4, 6), slice(6, 7))
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(seen[number], inputs[:, part])
        seed = int(np.random.SeedSequence([5, number]).generate_state(1)[0])
        alone = LinearProbe(classes=3)
        alone.fit(inputs[:30, part], targets[:30], seed=seed)
        expected = alone.represent(inputs[:, part], ["probabilities", "features"])
        for name, rows in expected.items():
            np.testing.assert_allclose(found[name][number], rows, atol=1e-9)


def test_columns_must_add_up():
    with pytest.raises(BadInput, match="the inputs have 3 columns, not 4"):
        make_column_committee(lambda rows: LinearProbe(), np.ones((5, 3)), [2, 2])
