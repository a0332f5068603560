"""What the tests of the stopping rules share."""

from labelwise.record.events import Asked, Started, Told
from labelwise.record.ledger import replay


def picked(ids, weights=None, items=400, validation=()):
    """A ledger in which these items were asked for and labelled."""
    ids = tuple(int(i) for i in ids)
    events = [Started(0.0, {}, items), Asked(1.0, 1, ids, weights, validation=validation)]
    return replay(events + [Told(2.0, i, "a") for i in ids])


def rule(advice, name):
    """What one rule says."""
    (found,) = [one for one in advice if one.rule == name]
    return found
