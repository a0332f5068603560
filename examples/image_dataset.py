"""Select from a data set in the style of torchvision: its items are pairs (image, class).

    pip install 'labelwise[torch]' scikit-learn

Any map-style data set works, such as ``torchvision.datasets.CIFAR10(..., transform=ToTensor())``.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

import labelwise


class Digits(Dataset):
    """Handwritten digits; ``transform`` is applied to an image when it is read."""

    def __init__(self, transform) -> None:
        images, self.targets = load_digits(return_X_y=True)
        self.images, self.transform = images.reshape(-1, 8, 8), transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), int(self.targets[index])


def to_tensor(image: np.ndarray) -> torch.Tensor:
    """An image as ``(1, height, width)`` from 0 to 1."""
    return torch.tensor(image / 16, dtype=torch.float32)[None]


def train(dataset: Dataset) -> nn.Module:
    """Train a small convolutional network."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 32), nn.ReLU()
    )
    module.append(nn.Linear(32, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.005)
    for _ in range(5):
        for images, targets in DataLoader(dataset, 20, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(images), targets).backward()
            optimizer.step()
    return module.eval()


def run(rounds: int = 2) -> list[int]:
    """The ids of 20 random items and of 20 picks per round, in the order of labelling."""
    dataset = Digits(to_tensor)
    labelled = labelwise.select("random", 20, ids=range(len(dataset)), seed=0).ids
    for _ in range(rounds):
        module = train(Subset(dataset, labelled.tolist()))
        loader = DataLoader(dataset, 256)  # not shuffled: rows are items
        rows = labelwise.represent(module, loader, ["features", "probabilities"])
        picks = labelwise.select("badge", 20, **rows, labelled=labelled)
        labelled = np.concatenate([labelled, picks.ids])
    return labelled.tolist()


if __name__ == "__main__":
    print(run())
