"""Simulated annotators, for the tests of agreement and resolution."""

import numpy as np


def crowd(items, accuracies, classes, votes_each, seed):
    """Simulated annotators: right with their own probability, else any other label alike."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(classes, size=items)
    votes = {}
    for item in range(items):
        chosen = generator.choice(len(accuracies), votes_each, replace=False)
        votes[item] = {}
        for person in chosen:
            wrong = (truth[item] + generator.integers(1, classes)) % classes
            right = generator.random() < accuracies[person]
            votes[item][f"p{person}"] = int(truth[item] if right else wrong)
    return votes, truth


# Agreement of two.
