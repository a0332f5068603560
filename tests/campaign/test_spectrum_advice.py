"""The stopping rule of the spectrum of labelled items."""

import math

import numpy as np

from labelwise.campaign.stopping import _judge_spectrum
from labelwise.campaign.training import SPECTRUM_MEASURES
from labelwise.selection.result import Selection
from labelwise.theory.spectrum import weighted_spectrum


def spectrum_of_first(count, features):
    """The spectrum of the first items, all with the same weight."""
    found = weighted_spectrum(Selection(np.arange(count)), features)
    return {name: getattr(found, name) for name in SPECTRUM_MEASURES}


def test_many_random_labels_are_enough_and_few_are_not():
    features = np.random.default_rng(1).normal(size=(400, 2))
    found = [spectrum_of_first(count, features) for count in (8, 390)]
    advice = [_judge_spectrum(spectrum) for spectrum in found]
    assert [one.stop for one in advice] == [False, True]
    assert all(one.judged for one in advice)


def test_directions_that_no_label_has_are_counted():
    features = np.eye(4).repeat(100, axis=0)
    found = _judge_spectrum(spectrum_of_first(150, features))
    assert not found.stop and found.says.endswith("yet (2 of 4 directions)")


def test_no_label_and_no_direction_cannot_be_judged():
    assert not _judge_spectrum(None).judged
    assert not _judge_spectrum(spectrum_of_first(3, np.zeros((400, 2)))).judged
    broken = {"lower": math.nan, "upper": 1.0, "rank": 2, "unseen": 0}
    assert not _judge_spectrum(broken).judged
