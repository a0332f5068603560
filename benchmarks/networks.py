"""The networks that gradients are measured on, for images of 3 x 32 x 32 and 10 classes."""

from torch import Tensor, nn


def small_cnn() -> nn.Module:
    """Two convolutions and two linear layers, 0.5 million parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 64, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Block(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.short = nn.Sequential()
        if stride != 1 or before != after:
            place = nn.Conv2d(before, after, 1, stride, bias=False)
            self.short = nn.Sequential(place, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """``(b, before, h, w) -> (b, after, h / stride, w / stride)``."""
        inner = self.relu1(self.norm1(self.conv1(x)))
        return self.relu2(self.norm2(self.conv2(inner)) + self.short(x))


def resnet18(width: int = 64) -> nn.Module:
    """The ResNet-18 for small images, 11 million parameters at the usual width."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    before = width
    for stage in range(4):
        after = width * 2**stage
        layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10)]
    return nn.Sequential(*layers)


NETWORKS = {"small_cnn": small_cnn, "resnet18": resnet18}
