"""One round of active learning, shared by campaigns, Label Studio, benchmark, simulate and demo.

=====================================  ==========================================================
`Round`                                a pool and a learner: represent, select, fit, measure
`adapt_options`                        options that follow from the history (`Strategy.adapt`)
`scale_weights`                        weights of a batch, scaled to mean 1 for training
`advance`                              the next step of a campaign: ask, train or wait
=====================================  ==========================================================

A round, from labels to the next batch::

    round = Round(Pool(inputs, ids), learner)
    report = round.fit(labels, weights, seed=seed)         # labels: {id: label}
    history = round.make_history(past_batches, labels, holdout)
    options = adapt_options(strategy, given_options, history)
    picks = round.select_batch(strategy, budget, labelled=list(labels), options=options, seed=seed)
    measured = round.measure(test_labels)

- A learner that is trained elsewhere (batched training, a checkpoint) is taken over by
  ``round.hold_model(LabelEncoding(), columns=range(number_of_classes))``, or
  ``round.hold_model(LabelEncoding(regression=True))``.
- A caller that times or reuses representations calls ``rows = round.represent(strategy)`` and
  passes ``rows=rows`` to ``select_batch``. ``prefer_members=True`` makes a Bayesian network give
  the representations of its members where a strategy reads either.
- Held-out items outside of the pool are ``Holdout(inputs, labels)``; items of the pool are a
  mapping from id to label.
- Past batches are `labelwise.strategy.PastBatch` values, whose ``options`` are those that
  ``adapt_options`` gave when the batch was selected.
- `DeferredLearner` postpones the import of a training library until something is trained.
- A campaign in a record fills `ScheduleState` from its ledger and does what ``advance`` answers
  until it answers None.
"""

from labelwise.rounds.label_encoding import LabelEncoding
from labelwise.rounds.measures import (
    AccuracyEstimate,
    count_confusions,
    estimate_accuracy,
    measure_agreement,
    measure_baseline,
    measure_classes,
    measure_out_of_fold,
    measure_predictions,
    measure_reliability,
    rank_suspicious_labels,
    wilson_interval,
)
from labelwise.rounds.round import (
    DeferredLearner,
    Holdout,
    Predictions,
    Round,
    adapt_options,
    merge_models,
    scale_weights,
)
from labelwise.rounds.schedule import ScheduleState, Step, advance

__all__ = [
    "AccuracyEstimate",
    "DeferredLearner",
    "Holdout",
    "LabelEncoding",
    "Predictions",
    "Round",
    "ScheduleState",
    "Step",
    "adapt_options",
    "advance",
    "count_confusions",
    "estimate_accuracy",
    "measure_agreement",
    "measure_baseline",
    "measure_classes",
    "measure_out_of_fold",
    "measure_predictions",
    "measure_reliability",
    "merge_models",
    "rank_suspicious_labels",
    "scale_weights",
    "wilson_interval",
]
