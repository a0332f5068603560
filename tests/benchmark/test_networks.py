"""The papers' architectures: sizes, shapes, skips, and that learners can use them."""

import pytest
import torch
from torch import nn

from labelwise.benchmark import networks
from labelwise.benchmark.networks import (
    FAMILY,
    NETWORKS,
    VARIANTS,
    crop_and_flip_images,
    make_network,
)
from labelwise.errors import BadInput, UnknownName
from labelwise.learners.gradients import gradient_norms
from labelwise.learners.network import find_head
from labelwise.learners.settings import cross_entropy

SHAPES = [(3, 32, 32), (1, 28, 28), (1, 8, 8)]


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", [*sorted(set(NETWORKS) - set(VARIANTS)), "variant_6_2_3"])
def test_every_network_takes_images_of_any_side_and_ends_in_a_linear_layer(name):
    for shape in SHAPES if parameters(make_network(name, SHAPES[0], 7)) < 2e6 else SHAPES[:1]:
        module = make_network(name, shape, 7).eval()
        images = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
        assert module(images).shape == (3, 7)
        assert all(layer.training for layer in make_network(name, shape, 7).modules())
        head = module.get_submodule(find_head(module, None, images))
        assert isinstance(head, nn.Linear) and head.out_features == 7


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        # weights and biases layer by layer: 6*(25+1), 16*(6*25+1), 400*120+120, 120*84+84, 84*10+10
        ("lenet5", (1, 28, 28), 156 + 2416 + 48120 + 10164 + 850),
        ("cnn", (3, 32, 32), 456 + 2416 + 48120 + 10164 + 850),
        ("cnn_avgpool", (3, 32, 32), 896 + 18496 + 73856 + 1290),
        ("mlp", (1, 28, 28), 784 * 256 + 256 + 256 * 256 + 256 + 2570),
        ("resnet18", (3, 32, 32), 11_173_962),
        ("vgg16", (3, 32, 32), 14_710_464 + 2 * 4224 + 5130),
    ],
)
def test_the_papers_networks_have_the_number_of_parameters_they_should(name, shape, count):
    assert parameters(make_network(name, shape, 10)) == count


def test_a_residual_block_that_keeps_its_shape_passes_its_input_on():
    network = make_network("resnet18_narrow", (3, 32, 32), 10).eval()
    block = next(layer for layer in network if isinstance(layer, networks.ResidualBlock))
    for parameter in block.body.parameters():
        nn.init.zeros_(parameter)
    images = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(block(images), images)
    shorts = [layer.short for layer in network if isinstance(layer, networks.ResidualBlock)]
    assert [isinstance(short, nn.Identity) for short in shorts] == [True, True] + 3 * [False, True]


def test_the_family_has_twelve_or_more_different_networks():
    sizes = {name: parameters(make_network(name, (1, 28, 28), 10)) for name in FAMILY}
    assert len(set(sizes.values())) == len(sizes) >= 12
    kinds = {
        name: tuple(type(layer).__name__ for layer in make_network(name, (1, 28, 28), 10).modules())
        for name in FAMILY
    }
    assert len(set(kinds.values())) >= 10
    assert max(sizes.values()) < 250_000


def test_a_width_of_32_comes_before_the_bayesian_head():
    network = make_network("bayesian_resnet18_narrow", (1, 28, 28), 10)
    assert [type(layer) for layer in network][-3:] == [nn.Linear, nn.ReLU, nn.Linear]
    assert network[-1].in_features == 32


@pytest.mark.parametrize("name", ["resnet18_narrow", "small_branches", "small_patches", "lenet5"])
def test_gradients_of_single_items_are_those_of_autograd(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make_network(name, (1, 8, 8), 4).eval().double()
        images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    targets = torch.tensor([0, 3, 1])
    found = gradient_norms(module, images, targets, cross_entropy)
    for number in range(3):
        loss = cross_entropy(module(images[number : number + 1]), targets[number : number + 1])
        parts = torch.autograd.grad(loss.sum(), list(module.parameters()))
        expected = sum(part.square().sum() for part in parts)
        torch.testing.assert_close(found[number], expected, rtol=1e-6, atol=1e-9)


def test_augmented_images_are_shifted_or_flipped_copies():
    image = torch.arange(1.0, 65).reshape(1, 1, 8, 8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        several = crop_and_flip_images(image.repeat(200, 1, 1, 1))
    padded = nn.functional.pad(torch.cat([image, image.flip(-1)]), (1, 1, 1, 1))[:, 0].numpy()
    allowed = {
        padded[flip, down : down + 8, right : right + 8].tobytes()
        for flip in range(2)
        for down in range(3)
        for right in range(3)
    }
    seen = {one[0].numpy().tobytes() for one in several}
    assert seen == allowed


def test_wrong_names_and_shapes_are_refused():
    with pytest.raises(UnknownName, match="there is no network 'lenet'; choose from lenet5"):
        make_network("lenet", (1, 28, 28), 10)
    with pytest.raises(BadInput, match=r"vgg16 takes images .* got shape \(9,\)"):
        make_network("vgg16", (9,), 10)
    with pytest.raises(BadInput, match="outputs must be 1 or more; got 0"):
        make_network("mlp", (9,), 0)
    assert make_network("mlp", (9,), 1)(torch.zeros(2, 9)).shape == (2, 1)


def shrink_variant(network, channels, layers, kernel):
    """The plain network of the variant's size, with its weights."""
    edge = (5 - kernel) // 2
    body, before = [], network[0].in_channels
    convolutions = [network[0], *(layer.layer for layer in network[3 : 2 + layers])]
    for number, large in enumerate(convolutions):
        small = nn.Conv2d(before, channels, kernel, 1 if number else 2, kernel // 2)
        inner = slice(edge, edge + kernel)
        small.weight.data = large.weight.data[:channels, :before, inner, inner]
        small.bias.data = large.bias.data[:channels]
        body += [small, nn.ReLU()] + ([] if number else [nn.MaxPool2d(2)])
        before = channels
    head = nn.Linear(4 * channels, network[-1].out_features)
    head.weight.data = network[-1].weight.data[:, : 4 * channels]
    head.bias.data = network[-1].bias.data
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), head)


@pytest.mark.parametrize("sizes", [(4, 1, 3), (6, 3, 5), (16, 5, 3)])
def test_a_variant_learns_like_the_plain_network_of_its_size(sizes):
    torch.manual_seed(0)
    large = make_network("variant_{}_{}_{}".format(*sizes), (3, 16, 16), 5).double()
    small = shrink_variant(large, *sizes).double()
    images, classes = torch.randn(20, 3, 16, 16).double(), torch.randint(5, (20,))
    for network in (large, small):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), classes).backward()
            optimizer.step()
    torch.testing.assert_close(large(images), small(images))


def test_the_variants_are_50_and_have_parameters_of_one_shape():
    shapes = {
        tuple(
            tuple(value.shape) for value in make_network(name, (1, 8, 8), 3).state_dict().values()
        )
        for name in VARIANTS
    }
    assert len(VARIANTS) == 50 and len(shapes) == 1
