"""What the page is told about the background process."""

from labelwise.campaign.settings import Settings
from labelwise.record.events import Started, Training, TrainingFailed
from labelwise.record.ledger import replay
from labelwise.web import bodies
from labelwise.web.background import WorkerReport
from labelwise.web.views import _show_training, add_worker_report


def told(progress, *events):
    training = _show_training(replay([Started(0.0, {}, 9), *events]), Settings())
    state = bodies.State.model_construct(training=training, batch=object())
    return add_worker_report(state, progress, trains=True, version="1").training


def test_a_failure_is_told_once_the_process_is_done_with_it():
    failed = (Training(1.0, 1, 5), TrainingFailed(2.0, 1, "no memory"))
    meanwhile = told(WorkerReport(stage="training"), *failed)
    assert meanwhile.running and meanwhile.error is None
    after = told(WorkerReport(error="the training failed: no memory"), *failed)
    assert not after.running and after.error == "the training failed: no memory"


def test_without_a_process_the_record_tells_of_the_failure():
    found = told(WorkerReport(), Training(1.0, 1, 5), TrainingFailed(2.0, 1, "no memory"))
    assert not found.running and found.error == "no memory"
