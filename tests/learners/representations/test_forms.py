"""Every form of the pool gives the same rows, in memory and in files."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import labelwise
from labelwise.errors import BadInput
from tests.learners.torch_learner.small import NAMES, POOL, trained


def test_every_form_of_the_pool_gives_the_same_rows(tmp_path):
    learner = trained()
    np.save(tmp_path / "pool.npy", POOL)
    expected = learner.represent(POOL, NAMES)
    forms = {
        "float64": POOL.astype(np.float64),
        "tensor": torch.from_numpy(POOL),
        "path": tmp_path / "pool.npy",
        "memory map": np.load(tmp_path / "pool.npy", mmap_mode="r"),
        "data set": TensorDataset(torch.from_numpy(POOL), torch.zeros(47)),
        "list of arrays": list(POOL),
    }
    for form, pool in forms.items():
        found = learner.represent(pool, NAMES)
        for name in NAMES:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=form)


class Words(nn.Module):
    """Takes whole numbers and a mask, by keyword."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(11, 6), nn.Linear(6, 2)

    def forward(self, words, mask):
        vectors = self.embedding(words) * mask[:, :, None]
        return self.out(vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True))


def test_inputs_by_keyword_reach_an_embedding_as_whole_numbers():
    words = np.random.default_rng(0).integers(11, size=(40, 4))
    mask = np.ones((40, 4))
    mask[:, 3] = 0
    targets = (words[:, :3] > 7).any(axis=1).astype(int)
    learner = trained(Words, {"words": words, "mask": mask}, targets, epochs=200, lr=0.05)
    assert (learner.predict({"mask": mask, "words": words}) == targets).mean() > 0.95
    changed = words.copy()
    changed[:, 3] = 0  # behind the mask
    np.testing.assert_array_equal(
        learner.represent({"words": changed, "mask": mask}, ["logits"])["logits"],
        learner.represent({"words": words, "mask": mask}, ["logits"])["logits"],
    )


def test_rows_streamed_to_files_are_those_in_memory(tmp_path):
    learner = trained(represent_batch_size=9)
    names = [*NAMES, "gradient_norms"]
    kept = learner.represent(POOL, names)
    streamed = learner.represent(POOL, names, folder=tmp_path / "rows")
    assert sorted(p.name for p in (tmp_path / "rows").iterdir()) == sorted(
        f"{n}.npy" for n in names
    )
    for name in names:
        assert isinstance(streamed[name], np.memmap) and streamed[name].dtype == kept[name].dtype
        np.testing.assert_array_equal(streamed[name], kept[name])
        np.testing.assert_array_equal(np.load(tmp_path / "rows" / f"{name}.npy"), kept[name])
    files = {name: str(tmp_path / "rows" / f"{name}.npy") for name in ("features", "probabilities")}
    from_files = labelwise.select("badge", 5, **files, seed=0)
    in_memory = {name: kept[name] for name in files}
    assert from_files.ids.tolist() == labelwise.select("badge", 5, **in_memory, seed=0).ids.tolist()


def test_an_exception_on_the_way_leaves_no_file(tmp_path):
    learner = trained(represent_batch_size=10)
    broken = [*POOL[:30], np.zeros(4, dtype=np.float32), *POOL[30:]]
    with pytest.raises(BadInput, match="do not fit in one batch"):
        learner.represent(broken, NAMES, folder=tmp_path)
    assert not list(tmp_path.iterdir())
