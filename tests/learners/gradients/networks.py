"""Small networks of the usual kinds, and a slow twin of per-item gradients."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from labelwise.learners.gradients import (
    gradient_norms,
    gradient_norms_and_products,
)


def mlp(classes=3):
    """Three linear layers, for ``(b, 6)``."""
    return nn.Sequential(
        nn.Linear(6, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, 12),
        nn.Tanh(),
        nn.Linear(12, classes),
    )


def cnn(classes=3):
    """Two convolutions and two linear layers, for ``(b, 1, 8, 8)``."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )


class Block(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.short(x))


class ResNet18(nn.Module):
    """The ResNet-18 for small images ``(b, 3, h, w)``; 64 is its usual width."""

    def __init__(self, classes=10, width=64):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
            before = after
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def vgg11(classes=10, width=64):
    """The VGG-11 with batch normalisation, for ``(b, 3, 32, 32)``; 64 is its usual width."""
    layers, before = [], 3
    for size in (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"):
        if size == "M":
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, size * width, 3, padding=1), nn.BatchNorm2d(size * width)]
        layers.append(nn.ReLU(inplace=True))
        before = size * width
    head = [nn.Linear(before, before), nn.ReLU(), nn.Dropout(), nn.Linear(before, classes)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


class Attention(nn.Module):
    """Self-attention made of linear layers."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        shape = (b, t, 3, self.heads, d // self.heads)
        q, k, v = self.project(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class Transformer(nn.Module):
    """Two layers over tokens ``(b, t)``; positions are an embedding of their own."""

    def __init__(self, classes=3, tokens=11, length=9, d=12):
        super().__init__()
        self.tokens = nn.Embedding(tokens, d, padding_idx=0)
        self.places = nn.Embedding(length, d)
        self.attention = nn.ModuleList(Attention(d, 3) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(4))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(2)
        )
        self.head = nn.Linear(d, classes)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for i in range(2):
            x = x + self.attention[i](self.norms[2 * i](x))
            x = x + self.wide[i](self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


class Patches(nn.Module):
    """A vision transformer for ``(b, 3, 8, 8)``: a class token, and positions as a parameter."""

    def __init__(self, classes=3, d=12):
        super().__init__()
        self.patches = nn.Conv2d(3, d, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, d))
        self.places = nn.Parameter(torch.zeros(1, 5, d))
        self.norm, self.attention = nn.LayerNorm(d), Attention(d, 3)
        self.head = nn.Linear(d, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head((x + self.attention(self.norm(x)))[:, 0])


class Encoder(nn.Module):
    """The same with the layers of torch, whose attention uses its weights directly."""

    def __init__(self, classes=3, tokens=11, d=12, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.tokens = nn.Embedding(tokens, d)
        layer = nn.TransformerEncoderLayer(d, 3, 2 * d, 0.1, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, classes)

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = self.layers(x if self.batch_first else x.transpose(0, 1))
        return self.head(x.mean(1 if self.batch_first else 0))


def randomised(module, seed=0):
    """The same module with all parameters and statistics drawn anew, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            scale = max(1, parameter[0].numel()) ** -0.5 if parameter.ndim > 1 else 0.5
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.copy_(scale * noise + (parameter.ndim == 1))
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                noise = torch.rand(buffer.shape, generator=generator, dtype=buffer.dtype)
                buffer.copy_(noise + 0.5 if "var" in name else noise - 0.5)
    return module.eval()


def cross_entropy(outputs, targets):
    """One loss per item."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs, targets):
    """One loss per item."""
    return functional.mse_loss(outputs, targets, reduction="none").flatten(1).sum(1)


def slow_gradients(module, inputs, targets, loss):
    """Every item's gradient by autograd, one after the other: a list of dicts by name."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    found = []
    for i in range(len(targets)):
        value = loss(module(inputs[i : i + 1]), targets[i : i + 1]).sum()
        gradients = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        pairs = zip(parameters.items(), gradients, strict=True)
        found.append({name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs})
    return found


def slow_norms(gradients):
    """``(b,)`` squared norms, summed in float64."""
    norms = [sum(g.double().square().sum() for g in one.values()) for one in gradients]
    return torch.stack(norms)


def slow_products(gradients, vector):
    """``(b,)`` products with the vector, summed in float64."""
    products = [
        sum((g.double() * vector[name].double()).sum() for name, g in one.items())
        for one in gradients
    ]
    return torch.stack(products)


def random_vector(module, seed=1):
    """One tensor per parameter, of the size of its values."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for name, p in module.named_parameters()
    }


class Checkpointed(nn.Module):
    """Two linear layers, the second computed again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.first, self.second = reentrant, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        inner = lambda v: torch.tanh(self.second(v))  # noqa: E731
        return checkpoint(inner, self.first(x), use_reentrant=self.reentrant)


def draw(*shape, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def classes(b, k=3, seed=7):
    return torch.randint(k, (b,), generator=torch.Generator().manual_seed(seed))


def tokens(b, t):
    return torch.randint(11, (b, t), generator=torch.Generator().manual_seed(5))


def check(module, x, targets, loss, tolerance=1e-5):
    """Both together and norms alone are what autograd gives, relative to the norms."""
    vector = random_vector(module)
    slow = slow_gradients(module, x, targets, loss)
    expected, length = slow_norms(slow), sum(v.double().square().sum() for v in vector.values())
    norms, products = gradient_norms_and_products(module, x, targets, vector, loss)
    assert ((norms - expected).abs() <= tolerance * expected).all()
    # A product of two long vectors may be small: it is exact relative to their lengths.
    off = (products - slow_products(slow, vector)).abs()
    assert (off <= tolerance * (expected * length).sqrt()).all()
    assert (
        (gradient_norms(module, x, targets, loss) - expected).abs() <= tolerance * expected
    ).all()


def refuse(*arguments):
    raise AssertionError(f"the gradients of {arguments[4]} were formed item by item")
