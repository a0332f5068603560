"""Schedule: whether to select the next batch, to train, or to wait.

When only the tail of a batch is open, the model is trained while people label the tail; then the
next batch is selected with the new model, so that nobody waits. When no item is left to ask for,
the labels of the last tail are trained on once more. A failed training is repeated on demand, or
when the whole batch is labelled, but never twice on the same labels. While all labels are of one
class, batches are selected without a model.

With rolling batches, a model is trained whenever a tail of new labels is in, and each new model
selects the items again that nobody works on.

A training takes over penalty and temperature of the model before, so that it ends within a second;
they are chosen again (``"tune"``) when the number of labels has grown by a quarter, while people
label.
"""

from dataclasses import dataclass
from typing import Literal

Step = Literal["ask", "train", "tune"]


@dataclass(frozen=True, kw_only=True)
class ScheduleState:
    """The state that determines the next step; a caller fills it in from its record."""

    left: int  # number of items that may still be asked for, by the pool and the budget
    labels: int = 0
    open_items: int = 0  # number of items of all batches that still wait for labels
    batch_size: int | None = None  # number of items of the last batch; None before the first batch
    batch_open: int = 0  # how many of them still wait for labels
    batch_model: int | None = None
    trained_model: int | None = None
    trained_labels: int = 0  # number of labels when its training began
    tail: float = 0.2  # share of a batch that may be open when training begins
    training: bool = False
    failed: bool = False
    # Number of labels at the last failure that the caller saw, or None
    failed_labels: int | None = None
    train_first: bool = False  # whether to train on labels that exist before the first batch
    trainable: bool = True  # whether the labels can train a model; False if all are of one class
    tuning_due: bool = False  # whether the last model waits for cross-validation
    rolling: int = 0  # number of waiting items that a new model may select again


def advance(state: ScheduleState) -> Step | None:
    """The next step: ``"ask"`` for a batch, ``"train"``, ``"tune"``, or None to wait.

    Cross-validation is for a process that would otherwise wait.

    >>> advance(ScheduleState(left=100))
    'ask'
    >>> advance(ScheduleState(left=90, labels=9, open_items=1, batch_size=10, batch_open=1))
    'train'
    """
    if state.training:
        return None
    step = _choose_urgent_step(state)
    return "tune" if step is None and state.tuning_due and not state.failed else step


def _choose_urgent_step(state: ScheduleState) -> Step | None:
    """The step that people wait for."""
    untrained = state.trained_model is None
    if state.batch_size is None:
        if state.train_first and state.labels and untrained and state.trainable:
            return None if state.failed_labels == state.labels else "train"
        return "ask" if state.left else None
    tail = state.tail * state.batch_size
    changed = state.labels > 0 and (untrained or state.labels != state.trained_labels)
    if state.rolling and not untrained and state.trainable:
        if state.labels - state.trained_labels > tail and not state.failed:
            return "train"
        if state.trained_model != state.batch_model:
            return "ask"
    if state.batch_open > tail:
        return None
    stale = untrained or state.trained_model == state.batch_model
    # A model that was trained early in the batch has missed more than a tail of labels.
    behind = not untrained and state.labels - state.trained_labels > tail
    finishing = not state.left and not state.open_items
    if state.trainable and changed and (stale or behind or finishing):
        blocked = state.failed and (
            state.failed_labels == state.labels
            or (state.failed_labels is not None and state.open_items > 0)
        )
        return None if blocked else "train"
    can_ask = not untrained or not state.open_items or not state.trainable
    return "ask" if state.left and can_ask else None
