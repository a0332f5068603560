"""An encoder that remembers what it was asked for."""

import threading

import numpy as np


class CountingEncoder:
    """Encodes a text as its length and its first letter; fails after some texts, if asked to."""

    name, kind, side, batch_size, workers = "counting", "texts", 0, 2, 2

    def __init__(self, *, checksum="one", dimension=2, fail_after=None):
        self.checksum, self.dimension, self.fail_after = checksum, dimension, fail_after
        self.seen = []
        self._lock = threading.Lock()

    def encode_batch(self, texts):
        with self._lock:
            if self.fail_after is not None and len(self.seen) >= self.fail_after:
                raise RuntimeError("out of power")
            self.seen += texts
        rows = np.zeros((len(texts), self.dimension), np.float32)
        rows[:, :2] = [[len(text), ord(text[0])] for text in texts]
        return rows
