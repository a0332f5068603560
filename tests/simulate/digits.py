"""A user's own data for simulations: some handwritten digits, and texts of two topics."""

import numpy as np
from sklearn.datasets import load_digits

from labelwise.simulate.own_data import check_own_data

DIGITS, KINDS = load_digits(return_X_y=True)
DATA = check_own_data(DIGITS[:300], KINDS[:300], name="digits")
TINY = {"rounds": 3, "batch": 10}
TOPICS = {
    "garden": "rose soil seed water leaf tree flower root spade rain".split(),
    "kitchen": "pan oven salt flour butter knife bread sugar soup spoon".split(),
}


def texts(count=120):
    """Short texts of two topics with some words of neither."""
    rng = np.random.default_rng(0)
    names = [list(TOPICS)[n % 2] for n in range(count)]
    common = "the a and with of".split()
    return [" ".join(rng.choice(TOPICS[n] + common, 8)) for n in names], names
