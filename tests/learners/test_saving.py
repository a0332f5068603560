"""Learners on disk."""

import json

import pytest
import torch
from safetensors.torch import load_file

from labelwise.errors import BadInput
from labelwise.learners import saving

FACTS = {"learner": "TorchLearner", "head": "2"}


def tensors():
    shared = torch.arange(6.0).reshape(2, 3)
    return {"a": shared, "b": shared, "c": shared.T, "d": torch.tensor(3), "e": shared.bfloat16()}


def test_tensors_and_facts_come_back(tmp_path):
    saving.save_learner(tmp_path / "some" / "where", tensors(), FACTS)
    found, facts = saving.load_learner(tmp_path / "some" / "where", "TorchLearner")
    assert facts == {"format": 1, **FACTS}
    assert set(found) == set(tensors())
    for name, value in tensors().items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def test_the_files_are_safetensors_and_json(tmp_path):
    saving.save_learner(tmp_path, tensors(), FACTS)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["learner.json", "tensors.safetensors"]
    assert json.loads((tmp_path / "learner.json").read_text())["head"] == "2"
    assert torch.equal(load_file(tmp_path / "tensors.safetensors")["a"], tensors()["a"])


def test_saving_again_replaces_the_files(tmp_path):
    saving.save_learner(tmp_path, {"old": torch.zeros(1)}, FACTS)
    saving.save_learner(tmp_path, {"new": torch.ones(1)}, {**FACTS, "head": "4"})
    found, facts = saving.load_learner(tmp_path, "TorchLearner")
    assert list(found) == ["new"] and facts["head"] == "4"


def test_a_folder_without_a_learner_says_so(tmp_path):
    with pytest.raises(BadInput, match=r"no saved learner: learner.json is missing"):
        saving.load_learner(tmp_path / "nothing", "TorchLearner")


@pytest.mark.parametrize("facts", [{**FACTS, "learner": "Committee"}, {**FACTS, "format": 9}])
def test_another_learner_or_format_is_refused(tmp_path, facts):
    saving.save_learner(tmp_path, tensors(), facts)
    with pytest.raises(BadInput, match="this is a TorchLearner of format 1"):
        saving.load_learner(tmp_path, "TorchLearner")


def test_broken_files_are_refused(tmp_path):
    saving.save_learner(tmp_path, tensors(), FACTS)
    (tmp_path / "tensors.safetensors").write_bytes(b"\x80\x04not safetensors")
    with pytest.raises(BadInput, match=r"tensors.safetensors cannot be read"):
        saving.load_learner(tmp_path, "TorchLearner")
    (tmp_path / "tensors.safetensors").unlink()
    with pytest.raises(BadInput, match=r"tensors.safetensors cannot be read"):
        saving.load_learner(tmp_path, "TorchLearner")
    (tmp_path / "learner.json").write_text("{")
    with pytest.raises(BadInput, match=r"learner.json is not JSON; save the learner again"):
        saving.load_learner(tmp_path, "TorchLearner")


def test_names_are_taken_from_under_a_prefix():
    found = saving.strip_tensor_prefix(
        "module.", {"module.a": torch.ones(1), "members.a": torch.zeros(1)}
    )
    assert list(found) == ["a"] and found["a"] == 1
