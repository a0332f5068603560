"""A trained module as it is, with data in every form."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import labelwise
from labelwise.errors import BadInput, UnknownName
from tests.learners.torch_learner.small import (
    INPUTS,
    LABELS,
    POOL,
    assert_states,
    normed,
    state,
    trained,
)

NAMES = ["features", "probabilities", "gradient_norms", "gradient_products", "gradient_sketch"]


@pytest.fixture(scope="module")
def learner():
    return trained(normed)


def test_a_module_gives_what_its_learner_gives_and_stays_as_it_is(learner, tmp_path):
    expected = learner.represent(POOL, NAMES)
    module, before = learner.module, state(learner)
    module.train()
    module[1].eval()
    found = labelwise.represent(module, POOL, NAMES, labelled=(INPUTS, LABELS), batch_size=10)
    assert [layer.training for layer in module] == [True, False, True, True, True]
    assert list(found) == NAMES
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)
    assert_states(state(learner), before, rtol=0, atol=0)
    files = labelwise.represent(module, POOL, ["features"], folder=tmp_path)
    assert isinstance(files["features"], np.memmap)


def test_norms_need_no_labelled_items(learner):
    names = ["gradient_norms"]
    alone = labelwise.represent(learner.module, POOL, names)["gradient_norms"]
    np.testing.assert_allclose(alone, learner.represent(POOL, names)[names[0]], rtol=1e-4)
    with pytest.raises(BadInput, match="gradient_products need the labelled items"):
        labelwise.represent(learner.module, POOL, ["gradient_products"])


def test_loaders_and_data_sets_give_what_arrays_give(learner):
    module, data = learner.module, TensorDataset(torch.from_numpy(POOL), torch.zeros(len(POOL)))
    expected = labelwise.represent(module, POOL, ["logits"])["logits"]
    pairs = [(row, 0) for row in POOL]
    forms = [data, pairs, DataLoader(data, batch_size=10), DataLoader(pairs, batch_size=47)]
    for form in forms:
        found = labelwise.represent(module, form, ["logits"])["logits"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_loader_that_changes_the_order_is_refused(learner):
    data = TensorDataset(torch.from_numpy(POOL))
    batches = torch.utils.data.BatchSampler(range(47), 5, drop_last=False)
    for loader, message in (
        (DataLoader(data, shuffle=True), "give shuffle=False"),
        (DataLoader(data, batch_sampler=batches), "batches in its own way"),
        (DataLoader(data, batch_size=10, drop_last=True), "give drop_last=False"),
    ):
        with pytest.raises(BadInput, match=message):
            labelwise.represent(learner.module, loader, ["logits"])
    with pytest.raises(BadInput, match="train on its dataset instead"):
        trained(inputs=DataLoader(TensorDataset(torch.from_numpy(INPUTS))))


def test_items_of_different_lengths_are_collated_by_the_users_function():
    embedding = nn.EmbeddingBag(9, 6, mode="sum", padding_idx=0)
    module = nn.Sequential(embedding, nn.Linear(6, 3))
    texts = [{"input": [1, 2, 3], "label": 0}, {"input": [4], "label": 1}]

    def pad(items):
        rows = [torch.tensor(item["input"]) for item in items]
        return {"input": nn.utils.rnn.pad_sequence(rows, batch_first=True), "label": torch.ones(2)}

    found = labelwise.represent(module, texts, ["logits"], collate_fn=pad)["logits"]
    alone = [module(torch.tensor([item["input"]])).detach().numpy()[0] for item in texts]
    np.testing.assert_allclose(found, alone, rtol=1e-5)
    with pytest.raises(BadInput, match=r"do not fit in one batch .*DataCollatorWithPadding"):
        labelwise.represent(module, texts, ["logits"])
    same = [{"input": [1, 2], "label": 0}, {"input": [4, 0], "label": 1}]
    assert labelwise.represent(module, same, ["logits"])["logits"].shape == (2, 3)


def test_a_regression_gives_values_and_sketches():
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    rows = labelwise.represent(module, POOL, ["outputs", "gradient_sketch"], loss="mse")
    np.testing.assert_allclose(rows["outputs"], module(torch.from_numpy(POOL)).detach())
    with pytest.raises(UnknownName, match="cannot give gradient_norms"):
        labelwise.represent(module, POOL, ["gradient_norms"], loss="mse")


def test_what_is_not_a_module_or_has_no_items_is_refused():
    with pytest.raises(BadInput, match="must be a torch module; got function"):
        labelwise.represent(normed, POOL, ["logits"])
    with pytest.raises(BadInput, match="no items"):
        labelwise.represent(normed(), POOL[:0], ["logits"])
    with pytest.raises(BadInput, match=r"labelwise.represent takes a trained module"):
        labelwise.TorchLearner(nn.Linear(4, 2))


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_tables_of_hugging_face_are_read_by_columns(form):
    datasets = pytest.importorskip("datasets")
    columns = {"input": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]}
    table = datasets.Dataset.from_dict(columns).with_format(form)
    module = nn.Sequential(nn.EmbeddingBag(9, 6), nn.Linear(6, 3))
    expected = module(torch.tensor(columns["input"])).detach()
    found = labelwise.represent(module, table, ["logits"])["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    learner = labelwise.TorchLearner(
        lambda: nn.Sequential(nn.EmbeddingBag(9, 6), nn.Linear(6, 3)), epochs=1
    )
    learner.fit(table, table["label"], seed=0)
    ragged = datasets.Dataset.from_dict({"input": [[1, 2], [3]]}).with_format(form)
    with pytest.raises(BadInput, match="rows of column 'input' differ in length"):
        labelwise.represent(module, ragged, ["logits"])
    texts = datasets.Dataset.from_dict({"input": [[1], [2]], "text": ["a", "b"]}).with_format(form)
    with pytest.raises(BadInput, match="column 'text' does not hold numbers; leave it out"):
        labelwise.represent(module, texts, ["logits"])
