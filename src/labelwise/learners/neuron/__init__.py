"""One neuron fitted to few weighted labels, which is what a `lewis` selection is for."""

from labelwise.learners.neuron.learner import NeuronFit, NeuronLearner, fit_neuron

__all__ = ["NeuronFit", "NeuronLearner", "fit_neuron"]
