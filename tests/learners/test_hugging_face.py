"""Classifiers of Hugging Face, made small from their configurations: nothing is downloaded."""

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import labelwise
from labelwise.errors import BadInput, MissingDependency
from labelwise.learners.hugging_face import HuggingFaceClassifier
from labelwise.learners.torch_learner import TorchLearner

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


GOOD = [
    "a lovely film with a warm heart", "the cast is wonderful", "what a joy from start to end",
    "warm and funny and wise", "i loved every minute", "a wonderful story well told",
    "the best film of the year", "funny and lovely", "a joy to watch", "great cast and great story",
]  # fmt: skip
BAD = [
    "a dull film without a heart", "the cast is awful", "what a bore from start to end",
    "cold and slow and silly", "i hated every minute", "an awful story badly told",
    "the worst film of the year", "slow and dull", "a bore to watch", "poor cast and poor story",
]  # fmt: skip
PAD, LENGTH = 0, 9


def encoded(sentences):
    """What a tokenizer of words gives: ids, and a mask over the padding."""
    known = sorted({word for sentence in GOOD + BAD for word in sentence.split()})
    ids = np.full((len(sentences), LENGTH), PAD)
    for row, sentence in zip(ids, sentences, strict=True):
        words = [1 + known.index(word) for word in sentence.split()]
        row[: len(words)] = words
    return {"input_ids": ids, "attention_mask": (ids != PAD).astype(int)}


TEXTS, MOODS = encoded(GOOD + BAD), np.repeat([0, 1], 10)
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES = (IMAGES.reshape(-1, 1, 8, 8) / 16).astype(np.float32)

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 24, "pad_token_id": PAD, "vocab_size": 60}  # fmt: skip


def bert(**changes):
    config = transformers.BertConfig(**SMALL, **changes)
    return transformers.BertForSequenceClassification(config)


def roberta():
    config = transformers.RobertaConfig(**SMALL, max_position_embeddings=20)
    return transformers.RobertaForSequenceClassification(config)


def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=24, pad_token_id=PAD
    )
    return transformers.DistilBertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=16, pad_token_id=PAD,
        num_labels=2, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


def llama():
    config = transformers.LlamaConfig(**SMALL, num_labels=2, num_key_value_heads=2)
    return transformers.LlamaForSequenceClassification(config)


def vit():
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        image_size=8, patch_size=2, num_channels=1, num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def resnet():
    config = transformers.ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[16, 24], depths=[1, 1], num_labels=10,
        layer_type="basic",
    )  # fmt: skip
    return transformers.ResNetForImageClassification(config)


def convnext():
    config = transformers.ConvNextConfig(
        num_channels=1, patch_size=2, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2,
        num_labels=10,
    )  # fmt: skip
    return transformers.ConvNextForImageClassification(config)


TEXT_MODELS = {"bert": bert, "roberta": roberta, "distilbert": distilbert, "gpt2": gpt2, "llama": llama}  # noqa: E501  # fmt: skip
IMAGE_MODELS = {"vit": vit, "resnet": resnet, "convnext": convnext}
CASES = [
    *(pytest.param(make, TEXTS, MOODS, id=name) for name, make in TEXT_MODELS.items()),
    *(pytest.param(make, IMAGES[:40], DIGITS[:40], id=name) for name, make in IMAGE_MODELS.items()),
]


def trained(make, inputs, targets, weights=None, seed=0, **options):
    settings = {"optimizer": "adamw", "lr": 0.005, "epochs": 3, "batch_size": 8}
    learner = TorchLearner(lambda: HuggingFaceClassifier(make()), **(settings | options))
    learner.fit(inputs, targets, weights, seed=seed)
    return learner


def as_tensors(inputs):
    if isinstance(inputs, dict):
        return {name: torch.from_numpy(value) for name, value in inputs.items()}
    return {"pixel_values": torch.from_numpy(inputs)}


@pytest.mark.parametrize(("make", "inputs", "targets"), CASES)
def test_logits_are_those_of_the_model_and_of_its_head_on_the_features(make, inputs, targets):
    learner = trained(make, inputs, targets)
    rows = learner.represent(inputs, ["features", "logits"])
    with torch.no_grad():
        own = learner.module.model(**as_tensors(inputs)).logits
    np.testing.assert_allclose(rows["logits"], own, rtol=1e-4, atol=1e-5)
    head = nn.functional.linear(
        torch.from_numpy(rows["features"]), learner.head.weight, learner.head.bias
    ).detach()
    np.testing.assert_allclose(rows["logits"], head, rtol=1e-4, atol=1e-5)
    assert rows["features"].ndim == 2 and rows["features"].std() > 0


@pytest.mark.parametrize("make", TEXT_MODELS.values(), ids=TEXT_MODELS.keys())
def test_moods_of_sentences_are_learnt(make):
    learner = trained(make, TEXTS, MOODS, epochs=60)
    assert (learner.predict(TEXTS) == MOODS).mean() > 0.8


@pytest.mark.parametrize("make", IMAGE_MODELS.values(), ids=IMAGE_MODELS.keys())
def test_images_are_picked_from(make):
    learner = trained(make, IMAGES[:40], DIGITS[:40])
    rows = learner.represent(IMAGES[:200], ["features", "probabilities"])
    picks = labelwise.select("badge", 10, **rows, labelled=np.arange(40), seed=0)
    assert (picks.ids >= 40).all()


@pytest.mark.parametrize("make", TEXT_MODELS.values(), ids=TEXT_MODELS.keys())
def test_what_is_behind_the_mask_does_not_matter(make):
    learner = trained(make, TEXTS, MOODS)
    longer = {name: np.pad(value, ((0, 0), (0, 3))) for name, value in TEXTS.items()}
    names = ["features", "logits"]
    short, long = learner.represent(TEXTS, names), learner.represent(longer, names)
    for name in names:
        np.testing.assert_allclose(long[name], short[name], rtol=1e-3, atol=1e-5)


def test_one_array_goes_where_the_main_input_goes():
    learner = trained(vit, {"pixel_values": IMAGES[:40]}, DIGITS[:40])
    plain = learner.represent(IMAGES[:9], ["logits"])["logits"]
    named = learner.represent({"pixel_values": IMAGES[:9]}, ["logits"])["logits"]
    np.testing.assert_array_equal(plain, named)
    whole = {name: value[:, :2] for name, value in TEXTS.items()}  # no sentence is shorter
    texts = trained(bert, whole, MOODS)
    plain = texts.represent(whole["input_ids"], ["logits"])["logits"]
    np.testing.assert_allclose(plain, texts.represent(whole, ["logits"])["logits"], rtol=1e-5)


def test_a_list_of_dicts_and_lists_of_numbers_are_as_good_as_arrays():
    learner = trained(bert, TEXTS, MOODS)
    expected = learner.represent(TEXTS, ["logits"])["logits"]
    one_by_one = [{name: value[i] for name, value in TEXTS.items()} for i in range(20)]
    lists = {name: value.tolist() for name, value in TEXTS.items()}
    for form in (one_by_one, lists, transformers.BatchEncoding(lists)):
        np.testing.assert_allclose(learner.represent(form, ["logits"])["logits"], expected)


def test_a_weight_of_two_equals_the_item_twice():
    make = lambda: bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # noqa: E731
    twice = np.r_[0:20, 0:5]
    options = {"optimizer": "sgd", "batch_size": 99, "epochs": 5}
    weighted = trained(make, TEXTS, MOODS, np.r_[np.full(5, 2.0), np.ones(15)], **options)
    more = {name: value[twice] for name, value in TEXTS.items()}
    repeated = trained(make, more, MOODS[twice], **options)
    torch.testing.assert_close(weighted.head.weight, repeated.head.weight, rtol=1e-4, atol=1e-4)


def test_every_training_starts_from_the_saved_weights(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        start = bert(id2label={0: "good", 1: "bad"})
    start.save_pretrained(tmp_path)
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    learner = trained(lambda: load(tmp_path), TEXTS, MOODS, lr=1e-12, epochs=1)
    for seed in (0, 1):
        learner.fit(TEXTS, MOODS, seed=seed)
        torch.testing.assert_close(learner.head.weight, start.classifier.weight, atol=1e-6, rtol=0)
    assert learner.module.class_names == ["good", "bad"]


def test_a_saved_learner_gives_the_same_rows(tmp_path):
    learner = trained(bert, TEXTS, MOODS)
    learner.save(tmp_path)
    loaded = TorchLearner(lambda: HuggingFaceClassifier(bert()))
    loaded.load(tmp_path)
    np.testing.assert_array_equal(
        loaded.represent(TEXTS, ["features"])["features"],
        learner.represent(TEXTS, ["features"])["features"],
    )


@pytest.mark.parametrize("make", [bert, vit, resnet])
def test_gradients_are_those_of_autograd(make):
    inputs, targets = (TEXTS, MOODS) if make is bert else (IMAGES[:30], DIGITS[:30])
    learner = trained(make, inputs, targets)
    found = learner.represent(inputs, ["gradient_norms"])["gradient_norms"]
    module, tensors = learner.module, as_tensors(inputs)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for i in range(3):
        logits = module(**{name: value[i : i + 1] for name, value in tensors.items()})
        loss = F.cross_entropy(logits, logits.argmax(dim=1))
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        norm = sum(float(part.square().sum()) for part in parts if part is not None)
        assert found[i] == pytest.approx(norm, rel=1e-3)


def test_a_model_needs_no_help_where_nothing_is_special():
    learner = TorchLearner(bert, epochs=2)
    learner.fit(TEXTS, MOODS, seed=0)
    rows = learner.represent(TEXTS, ["features", "probabilities"])
    assert rows["features"].shape == (20, 16)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({**TEXTS, "labels": MOODS}, "the inputs hold labels; take them out and give them as tar"),
        (TEXTS["input_ids"], "the padding token 0 but no attention_mask; give the whole output"),
        ({"input_ids": [[1, 2], [3]]}, "lists of the inputs differ in length; pad them"),
    ],
)
def test_inputs_that_would_be_misread_are_refused(inputs, message):
    with pytest.raises(BadInput, match=message):
        trained(bert, inputs, MOODS)


def test_other_modules_are_refused():
    with pytest.raises(BadInput, match="a model of transformers is needed; got Linear"):
        HuggingFaceClassifier(nn.Linear(2, 2))


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r"run pip install .labelwise\[huggingface\]"):
        HuggingFaceClassifier(nn.Linear(2, 2))


def test_models_of_timm_are_plain_modules():
    timm = pytest.importorskip("timm", reason="timm does not import here: it needs torchvision")
    make = lambda: timm.create_model("resnet10t", in_chans=1, num_classes=10)  # noqa: E731
    images = np.kron(IMAGES[:30], np.ones((1, 1, 4, 4), dtype=np.float32))
    learner = TorchLearner(make, epochs=1)
    learner.fit(images, DIGITS[:30], seed=0)
    assert learner.represent(images, ["features"])["features"].shape == (30, 512)
