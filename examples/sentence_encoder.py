"""Texts through a sentence encoder, a linear model on top, and picks that represent the pool.

    pip install 'labelwise[web]'
    python examples/sentence_encoder.py               # MiniLM if it is fetched, or TF-IDF
    python examples/sentence_encoder.py st:sentence-transformers/all-MiniLM-L6-v2
    python examples/sentence_encoder.py hf:intfloat/e5-small-v2

``st:`` needs the package sentence-transformers, ``hf:`` transformers; both take a name or a folder.
"""

import sys

import numpy as np

import labelwise

SUBJECTS = ("the screen", "the battery", "the camera", "the keyboard", "the sound")
PRAISE = ("is excellent", "is better than expected", "never failed", "makes me happy")
BLAME = ("is broken", "stopped working", "is worse than expected", "makes me angry")


def run(encoder: str = "tfidf") -> float:
    """The accuracy of a linear model on all texts, from 12 labels."""
    texts = [f"{subject} {words}" for subject in SUBJECTS for words in PRAISE + BLAME]
    good = np.array([words in PRAISE for _ in SUBJECTS for words in PRAISE + BLAME])
    features = labelwise.encode(texts, encoder)
    labelled = labelwise.select("uherding", 6, features=features).ids
    probe = labelwise.LinearProbe(classes=[False, True])
    probe.fit(features[labelled], good[labelled])
    rows = probe.represent(features, ["features", "logits"])
    picks = labelwise.select("uherding", 6, **rows, labelled=labelled)
    labelled = np.concatenate([labelled, picks.ids])
    probe.fit(features[labelled], good[labelled])
    return probe.score(features, good)


if __name__ == "__main__":
    print(run(sys.argv[1] if len(sys.argv) > 1 else "auto"))
