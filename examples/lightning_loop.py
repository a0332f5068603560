"""Active learning with a LightningModule, which Lightning's Trainer trains.

    pip install 'labelwise[torch]' scikit-learn lightning

The trained module is used as it is: `labelwise.represent` reads features and probabilities off it.
"""

import logging

import lightning
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import labelwise


class DigitClassifier(lightning.LightningModule):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits ``(b, 10)``."""
        return self.network(images)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch."""
        images, digits = batch
        return nn.functional.cross_entropy(self(images), digits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam with a large step, for few labels."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def run(rounds: int = 3) -> list[float]:
    """Label 20 digits per round; the accuracy on the whole pool after every round."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    pixels, digits = load_digits(return_X_y=True)
    images, targets = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
    pool = TensorDataset(images, targets)
    labelled = labelwise.select("max_herding", 20, features=images).ids
    accuracies = []
    for _ in range(rounds):
        module = DigitClassifier()
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=30,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, DataLoader(Subset(pool, labelled.tolist()), 16, shuffle=True))
        rows = labelwise.represent(module, images, ["features", "probabilities"])
        accuracies.append(float(np.mean(rows["probabilities"].argmax(axis=1) == digits)))
        picks = labelwise.select("badge", 20, **rows, labelled=labelled)
        labelled = np.concatenate([labelled, picks.ids])
    return accuracies


if __name__ == "__main__":
    print(run())
