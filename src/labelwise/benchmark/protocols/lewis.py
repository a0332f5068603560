"""One selection for several models by Lewis weights: Figures 1, 2 and 3, and Table 5.

S. Huang, Y. Li, Y. Sun, Y. Tang, "One-shot Active Learning Based on Lewis Weight Sampling for
Multiple Deep Models", ICLR 2024. In place of its 50 once-for-all networks there are 15 small ones
of different kinds, trained here. `lewis` picks everything at once, by what the networks give after
the first labels; the others buy batch after batch. The paper does not say whether training uses
the weights, so there is `lewis` in three ways: every pick weighs as many items as it stands for and
a first label 1, as in Algorithm 1; picks weigh 1 on average, as much as a first label; no weights.
"""

from collections.abc import Mapping
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, Scale

PAPER = "Huang et al. 2024, One-shot Active Learning Based on Lewis Weight Sampling"

FAMILY = (
    "small_perceptron_64",
    "small_perceptron_256",
    "small_perceptron_96_48",
    "small_perceptron_tanh",
    "small_convolution_3",
    "small_convolution_5",
    "small_convolution_7",
    "small_deep",
    "small_vgg",
    "small_residual",
    "small_residual_deep",
    "small_separable",
    "small_dilated",
    "small_branches",
    "small_patches",
)
FEW = ("small_perceptron_64", "small_perceptron_tanh", "small_convolution_3", "small_residual")

TRAINING: Mapping[str, Any] = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "epochs": 20}

EXACT = (
    "no ReLU after the last layer, since values are standardised; last layers fitted exactly, by "
    "least squares with the same weight decay, in place of 30 epochs of SGD"
)
REDUCED = "15 small networks trained here, by Adam, in place of 50 once-for-all networks"

ENTRANTS = (
    *map(Entrant, ("random", "k_center", "entropy", "committee", "disagreement")),
    Entrant("lewis", one_shot=True),
    Entrant("lewis", weights="mean", one_shot=True),
    Entrant("lewis", weights="none", one_shot=True),
)

SMALL: Mapping[str, Any] = {
    "networks": FEW,
    "pool": 4000,
    "test": 1000,
    "start": 200,
    "batch": 200,
    "rounds": 3,
    "learner": {"lr": 3e-3},
}
SMALL_WORDS = (
    "4 networks, a pool of 4,000, 1,000 test images, 200 labels at a time, 3 rounds, a learning "
    "rate of 0.003"
)
MEDIUM: Mapping[str, Any] = {
    "pool": 20_000,
    "start": 1000,
    "batch": 1000,
    "rounds": 4,
}
MEDIUM_WORDS = "a pool of 20,000, 1,000 labels at a time, 4 rounds"
SCALES = {"small": Scale(SMALL_WORDS, SMALL), "medium": Scale(MEDIUM_WORDS, MEDIUM)}


def vanilla(dataset: str, **changes: Any) -> Protocol:
    """Figure 2 on a data set."""
    made: dict[str, Any] = {
        "name": f"lewis-fig2-vanilla-{dataset}",
        "paper": f"{PAPER}, Figure 2",
        "about": f"mean accuracy of 15 networks on {dataset}, 3,000 labels at a time",
        "dataset": dataset,
        "networks": FAMILY,
        "learner": TRAINING,
        "start": 3000,
        "batch": 3000,
        "rounds": 5,
        "weights": "sum",
        "entrants": ENTRANTS,
        "reduced": REDUCED,
        "scales": SCALES,
    }
    return Protocol(**{**made, **changes})


def growth(dataset: str, **changes: Any) -> Protocol:
    """Figure 1 on a data set."""
    made: dict[str, Any] = {
        "name": f"lewis-fig1-growth-{dataset}",
        "paper": f"{PAPER}, Figure 1 and Table 2",
        "about": f"how the labels that are needed grow with the models, on {dataset}",
        "dataset": dataset,
        "networks": FAMILY,
        "learner": {**TRAINING, "loss": "mse"},
        "start": 3000,
        "batch": 1,
        "rounds": 0,
        "metric": "lewis_total",
        "study": "growth",
        "entrants": (
            Entrant("lewis", {"p": 2.0}),
            Entrant("lewis", {"p": 2.0, "curve": "ranks"}),
            Entrant("lewis", {"p": 1.0}),
        ),
        "reduced": REDUCED,
        "scales": {
            "small": Scale(
                "a pool of 4,000, 300 labels, 10 epochs",
                {"pool": 4000, "start": 300, "learner": {"epochs": 10}},
            ),
            "medium": Scale("a pool of 20,000 and 1,000 labels", {"pool": 20_000, "start": 1000}),
        },
    }
    return Protocol(**{**made, **changes})


def finetune(dataset: str, few: tuple[str, ...] = FEW, **changes: Any) -> Protocol:
    """Figure 3 on a regression; a small scale has ``few`` networks."""
    made: dict[str, Any] = {
        "name": f"lewis-fig3-finetune-{dataset}",
        "paper": f"{PAPER}, Figure 3",
        "about": f"last layers of 15 networks on {dataset}, everything bought at once",
        "dataset": dataset,
        "networks": FAMILY,
        "learner": {**TRAINING, "loss": "mse"},
        "start": 500,
        "batch": 1500,
        "rounds": 4,
        "metric": "mse",
        "weights": "sum",
        "frozen": True,
        "settings": {"frozen": {"loss": "mse", "weight_decay": 0.1}},
        "entrants": (
            *map(Entrant, ("random", "k_center", "committee")),
            Entrant("lewis"),
            Entrant("lewis", weights="mean"),
            Entrant("lewis", weights="none"),
        ),
        "reduced": f"{REDUCED}; {dataset} in place of three sets of faces; {EXACT}",
        "scales": {
            "small": Scale(
                "4 networks, a pool of 4,000, 1,000 test items, 200 labels at the start, 300 at a "
                "time, 3 rounds",
                {
                    "networks": few,
                    "pool": 4000,
                    "test": 1000,
                    "start": 200,
                    "batch": 300,
                    "rounds": 3,
                },
            ),
        },
    }
    return Protocol(**{**made, **changes})


TABULAR = (
    "small_perceptron_64",
    "small_perceptron_256",
    "small_perceptron_96_48",
    "small_perceptron_tanh",
)

IMBALANCE = vanilla(
    "fashion_mnist",
    name="lewis-table5-imbalance",
    paper=f"{PAPER}, Table 5",
    about="largest over smallest class among the labels after three batches",
    metric="imbalance",
    rounds=3,
)

EXPERIMENTS = {
    protocol.name: protocol
    for protocol in (
        growth("fashion_mnist", name="lewis-fig1-growth"),
        growth("mnist"),
        growth("cifar10"),
        vanilla("fashion_mnist", name="lewis-fig2-vanilla"),
        vanilla("mnist"),
        vanilla("cifar10"),
        finetune("dsprites", name="lewis-fig3-finetune"),
        finetune(
            "casp",
            few=TABULAR,
            networks=TABULAR,
            about="last layers of 4 perceptrons on casp, everything bought at once",
            reduced="4 perceptrons in place of 50 once-for-all networks; protein structures (CASP) "
            f"in place of three sets of faces; {EXACT}",
        ),
        IMBALANCE,
    )
}
