"""Representations in one pass: of any batch size, in eval mode, each item by itself."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from labelwise.errors import BadInput, UnknownName
from labelwise.learner import REPRESENTATIONS
from labelwise.learners.torch_learner import TorchLearner
from tests.learners.torch_learner.small import (
    INPUTS,
    NAMES,
    POOL,
    assert_states,
    normed,
    state,
    trained,
)


def test_features_times_the_head_are_the_logits_and_their_softmax_the_probabilities():
    learner = trained()
    rows = learner.represent(POOL, NAMES)
    module = learner.module
    hidden = torch.tanh(module[0](torch.from_numpy(POOL))).detach()
    logits = hidden @ learner.head.weight.detach().T + learner.head.bias.detach()
    np.testing.assert_allclose(rows["features"], hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["logits"], logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["probabilities"], logits.softmax(dim=1), rtol=1e-5, atol=1e-6)
    assert learner.predict(POOL).tolist() == logits.argmax(dim=1).tolist()


def test_one_pass_gives_what_separate_calls_give_and_each_has_its_axes():
    learner = trained()
    names = [*NAMES, "gradient_norms", "gradient_products"]
    together = learner.represent(POOL, names)
    assert list(together) == names
    for name in names:
        alone = learner.represent(POOL, [name])
        assert list(alone) == [name]
        np.testing.assert_array_equal(alone[name], together[name])
        assert alone[name].ndim == len(REPRESENTATIONS[name].axes) and len(alone[name]) == 47


@pytest.mark.parametrize("size", [1, 7, 47, 1000])
def test_the_batch_size_does_not_matter(size):
    names = [*NAMES, "gradient_norms", "gradient_products"]
    expected = trained(normed).represent(POOL, names)
    found = trained(normed, represent_batch_size=size).represent(POOL, names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_items_are_seen_in_eval_mode_and_alone():
    learner = trained(normed)
    module = learner.module
    with torch.no_grad():
        expected = torch.cat([module.eval()(row[None]) for row in torch.from_numpy(POOL)])
    module.train()
    module[1].eval()  # a mixture of modes, as the user left it
    logits = learner.represent(POOL, ["logits"])["logits"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert [layer.training for layer in module] == [True, False, True, True, True]
    assert module[1].num_batches_tracked == 5


def test_one_pass_over_the_items_reads_each_once_and_batch_by_batch():
    class Counting:
        """Gives items, and says which were asked for."""

        def __init__(self):
            self.asked, self.told = [], []

        def __len__(self):
            return len(POOL)

        def __getitem__(self, position):
            self.asked.append(position)
            return POOL[position]

    items, asked = Counting(), []
    learner = trained(represent_batch_size=10)
    learner._progress = lambda *where: asked.append((where, len(items.asked)))
    rows = learner.represent(items, NAMES)
    assert items.asked == list(range(47))
    assert [counts for _, counts in asked] == [10, 20, 29, 38, 47]  # none before its batch
    assert asked[-1][0] == ("representing", 47, 47)
    np.testing.assert_array_equal(rows["logits"], learner.represent(POOL, ["logits"])["logits"])


def test_an_item_that_is_not_finite_spoils_no_other():
    learner, pool = trained(normed), POOL.copy()
    pool[11, 2] = np.nan
    clean, found = learner.represent(POOL, ["logits"]), learner.represent(pool, ["logits"])
    assert np.isnan(found["logits"][11]).all()
    others = np.arange(47) != 11
    np.testing.assert_allclose(found["logits"][others], clean["logits"][others], rtol=1e-5)


def test_a_module_that_works_in_place_changes_no_items_of_the_user():
    make = lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3))  # noqa: E731
    inputs, pool = torch.from_numpy(INPUTS.copy()), torch.from_numpy(POOL.copy())
    learner = trained(make, inputs, batch_size=1, epochs=1)
    learner.represent(pool, NAMES)
    np.testing.assert_array_equal(inputs, INPUTS)
    np.testing.assert_array_equal(pool, POOL)


def test_layers_may_take_their_width_from_the_first_items(tmp_path):
    make = lambda: nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))  # noqa: E731
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Lazy modules", UserWarning)
        learner = trained(make)
        assert_states(state(learner), state(trained(make)), rtol=0, atol=0)
        assert learner.represent(POOL, NAMES)["features"].shape == (47, 8)
        learner.save(tmp_path)
        loaded = TorchLearner(make)
        loaded.load(tmp_path)
    assert loaded.predict(POOL).tolist() == learner.predict(POOL).tolist()


def test_names_that_cannot_be_given_are_refused():
    learner = trained()
    with pytest.raises(UnknownName, match="no representation is called 'embeddings'; choose from"):
        learner.represent(POOL, ["embeddings"])
    with pytest.raises(UnknownName, match="cannot give outputs; it gives features, logits"):
        learner.represent(POOL, ["outputs"])
    with pytest.raises(UnknownName, match="cannot give member_probabilities"):
        learner.represent(POOL, ["member_probabilities"])


def test_no_items_at_all_are_refused():
    with pytest.raises(BadInput, match="no items to represent"):
        trained().represent(POOL[:0], NAMES)
