"""One neuron fitted to few weighted labels, the purpose of a `lewis` selection."""

from labelwise.learners.neuron.fit import NeuronFit, NeuronLearner, fit_neuron

__all__ = ["NeuronFit", "NeuronLearner", "fit_neuron"]
