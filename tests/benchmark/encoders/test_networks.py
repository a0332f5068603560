"""The networks of the encoders against the layers' definitions and other implementations."""

import doctest

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from labelwise.benchmark.encoders import efficientnet, minilm, mobilenet, plain, resnet50
from labelwise.benchmark.encoders import squeezenet as squeeze
from labelwise.benchmark.encoders.image_networks import (
    BYTES,
    SamePadding,
    convert_kernel,
    fill_weights,
    make_image_encoder,
)


def test_the_examples_run():
    found = doctest.testmod(efficientnet)
    assert found.attempted > 0 and found.failed == 0


@pytest.mark.parametrize(
    ("network", "side", "shape"),
    [
        (efficientnet.EfficientNetLite(0), 64, (2, 1280, 2, 2)),
        (efficientnet.EfficientNetLite(1), 64, (2, 1280, 2, 2)),
        (efficientnet.EfficientNetLite(2), 64, (2, 1280, 2, 2)),
        (resnet50.ResNet50(), 64, (2, 2048, 2, 2)),
        (mobilenet.make_mobilenet(), 64, (2, 1024, 2, 2)),
        (squeeze.make_squeezenet(), 63, (2, 512, 3, 3)),
        (plain.vgg16(), 32, (2, 512, 2, 2)),
        (plain.alexnet(), 63, (2, 256, 3, 3)),
    ],
)
def test_a_network_gives_as_many_channels_as_the_catalogue_says(network, side, shape):
    with torch.inference_mode():
        assert tuple(network.eval()(torch.zeros(2, 3, side, side)).shape) == shape


@pytest.mark.parametrize(
    ("network", "millions"),
    [
        (efficientnet.EfficientNetLite(0), 4.652 - 1.281),
        (efficientnet.EfficientNetLite(1), 5.416 - 1.281),
        (efficientnet.EfficientNetLite(2), 6.092 - 1.281),
        (squeeze.make_squeezenet(), 1.235 - 0.513),
        (plain.vgg16(), 14.715),
        (plain.alexnet(), 2.470),
        (minilm.MiniLM(), 22.713 - 0.148),
    ],
)
def test_a_network_has_the_published_number_of_parameters(network, millions):
    count = sum(values.numel() for values in network.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=2e-3)


@pytest.mark.parametrize(("side", "size", "stride"), [(8, 3, 2), (9, 3, 2), (7, 5, 1), (8, 1, 1)])
def test_padding_is_that_of_tensorflow(side, size, stride):
    images = torch.rand(1, 1, side, side)
    padded = SamePadding(size, stride)(images)
    outputs = -(-side // stride)
    assert (padded.shape[-1] - size) // stride + 1 == outputs
    total = max((outputs - 1) * stride + size - side, 0)
    before = total // 2
    expected = np.zeros((side + total, side + total), np.float32)
    expected[before : before + side, before : before + side] = images[0, 0]
    np.testing.assert_array_equal(padded[0, 0], expected)


def test_a_kernel_of_tensorflow_gives_the_same_sums():
    rng = np.random.default_rng(0)
    values, image = rng.normal(size=(3, 2, 4, 5)), rng.normal(size=(4, 3, 2))
    ours = functional.conv2d(torch.tensor(image)[None], torch.tensor(convert_kernel(values)))
    wanted = np.einsum("chw,hwco->o", image, values)
    np.testing.assert_allclose(ours[0, :, 0, 0], wanted)


def test_images_are_resized_scaled_and_averaged():
    network = nn.Conv2d(3, 3, 1, bias=False)
    fill_weights(network, {"weight": np.eye(3, dtype=np.float32)[:, :, None, None]})
    images = np.full((10, 3, 4, 4), 0.5, np.float32)
    images[:, 1] = 1.0
    found = make_image_encoder(network, 8, mean=(0.5, 0.5, 0.0), deviation=(1.0, 0.5, 2.0))(images)
    np.testing.assert_allclose(found, np.tile([0.0, 1.0, 0.25], (10, 1)), atol=1e-6)
    raw = make_image_encoder(network, 8, **BYTES)(images)
    np.testing.assert_allclose(raw[0], [127.5 - 123.68, 255 - 116.779, 127.5 - 103.939], atol=1e-3)


def test_images_do_not_depend_on_the_batch_they_come_in():
    torch.manual_seed(0)
    encode = make_image_encoder(squeeze.make_squeezenet(), 63)
    images = np.random.default_rng(0).random((11, 3, 16, 16), np.float32)
    whole = encode(images)
    np.testing.assert_allclose(whole[9:], encode(images[9:]), rtol=1e-3, atol=1e-5)


def test_parameters_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="Missing key"):
        fill_weights(nn.Linear(2, 3), {"weight": np.zeros((3, 2), np.float32)})


def test_a_folded_normalisation_is_the_normalisation():
    rng = np.random.default_rng(1)
    held = {
        "conv1/kernel": rng.normal(size=(7, 7, 3, 64)),
        "conv1/bias": rng.normal(size=64),
        "bn_conv1/gamma": rng.random(64) + 0.5,
        "bn_conv1/beta": rng.normal(size=64),
        "bn_conv1/moving_mean": rng.normal(size=64),
        "bn_conv1/moving_variance": rng.random(64) + 0.1,
    }
    found = resnet50.fold_normalisations(held)
    image = rng.normal(size=(1, 3, 7, 7))
    flipped = torch.tensor(image[:, ::-1].copy())  # it was trained on blue, green, red
    plain_sums = functional.conv2d(
        flipped,
        torch.tensor(convert_kernel(held["conv1/kernel"])),
        torch.tensor(held["conv1/bias"]),
    )
    names = ("moving_mean", "moving_variance", "gamma", "beta")
    norm = [torch.tensor(held[f"bn_conv1/{name}"]) for name in names]
    wanted = functional.batch_norm(plain_sums, *norm, eps=1e-3)
    ours = functional.conv2d(
        torch.tensor(image, dtype=torch.float32),
        torch.tensor(found["conv1.weight"]),
        torch.tensor(found["conv1.bias"]),
    )
    np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-3)


def test_the_transformer_is_a_bert():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=24, num_attention_heads=3, num_hidden_layers=2, intermediate_size=96
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    held = {name: values.numpy() for name, values in bert.state_dict().items()}
    ours = fill_weights(minilm.MiniLM(24, 3, 2), minilm.rename_weights(held)).eval()
    pieces = torch.randint(5, 30_000, (2, 7))
    there = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    with torch.inference_mode():
        last = bert(pieces, attention_mask=there).last_hidden_state
        found = ours(pieces, there.bool())
    means = torch.stack([last[0].mean(dim=0), last[1, :4].mean(dim=0)])
    wanted = means / means.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
