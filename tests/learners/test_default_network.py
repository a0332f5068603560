"""Networks from scratch: good enough with few labels on real data, and whole after a restart."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, load_wine
from torch import nn

from labelwise.errors import BadInput, UnknownName
from labelwise.learners.default_network import (
    Convolutions,
    Perceptron,
    make_network_learner,
    shift_images,
)
from labelwise.learners.defaults import load_builder
from labelwise.learners.embedding import Standardizer

DIGITS, KINDS = load_digits(return_X_y=True)
PICTURES = (DIGITS.reshape(-1, 1, 8, 8) * 15).astype(np.uint8)
ORDER = np.random.default_rng(0).permutation(len(KINDS))


def shuffled(load):
    """Standardised rows and targets of a data set, in an order of their own."""
    inputs, targets = load(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(targets))
    return Standardizer.fit(inputs)(inputs)[order], targets[order]


def test_a_perceptron_is_linear_layers_with_relu_between_them():
    network, inputs = Perceptron(6, 5, 4, 3), torch.randn(7, 2, 3)
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hidden = inputs.flatten(1)
    for layer in linear[:-1]:
        hidden = layer(hidden).relu()
    torch.testing.assert_close(network(inputs), linear[-1](hidden))
    assert linear[-1] is network.head


@pytest.fixture(scope="module")
def digits():
    """A learner trained on 100 digits."""
    learner = make_network_learner(PICTURES, 10, device="cpu")
    learner.fit(PICTURES[ORDER[:100]], KINDS[ORDER[:100]], seed=0)
    return learner


def test_a_hundred_digits_are_enough_to_read_most(digits):
    rest = ORDER[1000:]
    assert (digits.predict(PICTURES[rest]) == KINDS[rest]).mean() > 0.5


def test_a_network_serves_every_kind_of_strategy(digits):
    some = PICTURES[ORDER[:6]]
    names = ["features", "probabilities", "logits", "member_probabilities", "member_votes"]
    rows = digits.represent(some, [*names, "gradient_norms", "gradient_products"])
    assert rows["features"].shape == (6, 128)
    np.testing.assert_allclose(rows["probabilities"].sum(axis=1), 1, rtol=1e-5)
    assert rows["member_probabilities"].shape[::2] == (6, 10)
    assert (rows["gradient_norms"] > 0).all()


def test_a_saved_network_predicts_the_same_however_many_classes_there_are_now(digits, tmp_path):
    digits.save(tmp_path)
    for classes in (None, 12):
        again = make_network_learner(PICTURES[:50], classes, device="cpu")
        again.load(tmp_path)
        names = ["probabilities", "member_votes"]
        ours, theirs = (learner.represent(PICTURES[:40], names) for learner in (digits, again))
        for name in names:
            np.testing.assert_array_equal(ours[name], theirs[name])
    with pytest.raises(BadInput, match="other labels; train again"):
        make_network_learner(PICTURES, regression=True, device="cpu").load(tmp_path)


def test_there_are_as_many_outputs_as_labels_or_classes_need():
    rows, kinds = shuffled(load_wine)
    for classes, wanted in ((None, 3), (2, 3), (5, 5)):
        learner = make_network_learner(rows, classes, device="cpu")
        learner.fit(rows[:20], kinds[:20], seed=0)
        assert learner.represent(rows[:2], ["logits"])["logits"].shape == (2, wanted)


def test_twenty_wines_are_enough_to_tell_them_apart():
    rows, kinds = shuffled(load_wine)
    learner = make_network_learner(rows, 3, device="cpu")
    learner.fit(rows[:20], kinds[:20], seed=0)
    assert (learner.predict(rows[20:]) == kinds[20:]).mean() > 0.6


def test_a_regression_is_in_the_units_of_its_labels(tmp_path):
    rows, values = shuffled(load_diabetes)
    small, large = (make_network_learner(rows, regression=True, device="cpu") for _ in "ab")
    first = small.fit(rows[:150], values[:150], seed=0)
    second = large.fit(rows[:150], 1000 * values[:150] + 5e6, seed=0)
    guesses = small.predict(rows[150:])[:, 0]
    assert np.square(guesses - values[150:]).mean() < values.var()
    np.testing.assert_allclose(large.predict(rows[150:])[:, 0], 1000 * guesses + 5e6, rtol=1e-3)
    assert second.loss == pytest.approx(1e6 * first.loss, rel=1e-2)
    small.save(tmp_path)
    again = make_network_learner(rows, regression=True, device="cpu")
    again.load(tmp_path)
    np.testing.assert_array_equal(again.predict(rows), small.predict(rows))
    votes = again.represent(rows[150:], ["member_votes"])["member_votes"]
    np.testing.assert_allclose(votes.mean(axis=1), guesses, atol=values.std())


def test_a_training_repeats_with_its_seed():
    first, second, other = (make_network_learner(PICTURES, 10, device="cpu") for _ in range(3))
    labelled = ORDER[:12]
    for learner, seed in ((first, 3), (second, 3), (other, 4)):
        learner.fit(PICTURES[labelled], KINDS[labelled], seed=seed)
    rows = [x.represent(PICTURES[:9], ["logits"])["logits"] for x in (first, second, other)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.allclose(rows[0], rows[2])


class Watched(nn.Linear):
    """A network that notes how many threads torch has while it runs."""

    def __init__(self, seen, spare, outputs):
        super().__init__(13, outputs)
        self.seen, self.spare = seen, nn.Parameter(torch.zeros(spare), requires_grad=False)

    def forward(self, rows):
        self.seen.add(torch.get_num_threads())
        return super().forward(rows)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("spare", "threads"), [(900_000, 1), (1_000_000, 3)])
def test_a_small_network_runs_on_one_thread_and_gives_the_others_back(
    spare, threads, three_threads
):
    rows, kinds = shuffled(load_wine)
    seen = set()
    learner = make_network_learner(
        rows, 3, module=lambda shape, k: Watched(seen, spare, k), device="cpu"
    )
    learner.fit(rows[:20], kinds[:20], seed=0)
    assert (seen, torch.get_num_threads()) == ({threads}, 3)
    seen.clear()
    learner.predict(rows)
    assert (seen, torch.get_num_threads()) == ({threads}, 3)


def test_threads_are_given_back_after_a_training_that_fails(three_threads):
    rows, kinds = shuffled(load_wine)
    too_narrow = make_network_learner(
        rows, 3, module=lambda shape, outputs: nn.Linear(5, outputs), device="cpu"
    )
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        too_narrow.fit(rows[:9], kinds[:9], seed=0)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 8), (3, 17, 17), (3, 32, 32), (3, 5, 64)])
def test_pictures_of_any_size_go_through(shape):
    network = Convolutions(shape, 7)
    assert network(torch.zeros(2, *shape)).shape == (2, 7)


def test_pictures_are_moved_and_their_border_follows():
    image = torch.zeros(1, 1, 16, 16)
    image[0, 0, :, :8] = 1.0
    moved = shift_images(image.repeat(200, 1, 1, 1))
    widths = moved[:, 0, 5].sum(dim=1)  # a left half that moved by -2 to 2
    assert set(widths.tolist()) == {6.0, 7.0, 8.0, 9.0, 10.0}
    assert ((moved == 0) | (moved == 1)).all()


def test_values_that_are_no_regression_are_refused():
    rows, _ = shuffled(load_diabetes)
    learner = make_network_learner(rows, regression=True, device="cpu")
    with pytest.raises(BadInput, match="labels must be finite"):
        learner.fit(rows[:3], [1.0, np.nan, 2.0], seed=0)
    with pytest.raises(BadInput, match=r"one value per item; got \(3, 2\)"):
        learner.fit(rows[:3], np.ones((3, 2)), seed=0)


def test_a_users_own_network_is_found_and_trained(tmp_path):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def flat(shape, outputs):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], outputs))\n"
    )
    before = list(sys.path)
    build = load_builder("my_networks:flat", places=[tmp_path])
    assert sys.path == before
    learner = make_network_learner(PICTURES, 10, module=build, device="cpu")
    learner.fit(PICTURES[ORDER[:60]], KINDS[ORDER[:60]], seed=0)
    assert isinstance(learner.head, nn.Linear) and learner.head.in_features == 64
    for name, message in [
        ("my_networks", "package.module:function; got 'my_networks'"),
        ("no_such_networks:flat", "no_such_networks cannot be imported"),
        ("my_networks:deep", "my_networks has no 'deep'"),
    ]:
        with pytest.raises((BadInput, UnknownName), match=message):
            load_builder(name, places=[tmp_path])
