"""Rows held by workers that are lost and made again: the same answers as from one process.

The workers are in this process, so that they can be lost at every single call.
"""

import itertools
import os
import threading
import warnings

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labelwise
from labelwise.errors import BadInput, LabelwiseWarning, UnknownName
from labelwise.pool.blocks import LocalShards, Shard
from labelwise.pool.parts import PartWorker
from labelwise.pool.ray.parts import RESTORES, ClusterFailed, LostAnswer, RayShards
from labelwise.selection import run
from tests.conftest import make_features
from tests.strategies.test_contract import BUDGET, N, make_inputs


class CrewHere:
    """Workers in this process, the calls of which are numbered from 0.

    A worker is lost before the call is done for a number in ``before``, and after it has done the
    call but before it can answer for one in ``after``.
    """

    dumps = staticmethod(cloudpickle.dumps)

    def __init__(self, count, before=(), after=()):
        self.before, self.after = set(before), set(after)
        self.workers = [PartWorker(self.dumps) for _ in range(count)]
        self.generations = [0] * count
        self.calls, self.steady = [], threading.RLock()

    def __len__(self):
        return len(self.workers)

    def store(self, payload):
        return payload

    def send(self, number, method, *arguments):
        call = len(self.calls)
        self.calls.append((number, method))
        if call in self.before:
            self.workers[number] = None
        worker = self.workers[number]
        answer = LostAnswer("gone") if worker is None else getattr(worker, method)(*arguments)
        if call in self.after:
            self.workers[number] = None
        return answer if self.workers[number] is not None else LostAnswer("gone")

    def collect(self, answers):
        return list(answers)

    def replace(self, numbers, generations=None):
        with self.steady:
            lost = generations or [self.generations[number] for number in numbers]
            for number, which in zip(numbers, lost, strict=True):
                if which == self.generations[number]:
                    self.workers[number] = PartWorker(self.dumps)
                    self.generations[number] += 1


def held(crew, inputs, count=N, **named):
    return RayShards(crew, inputs, count, block_bytes=1, **named)  # blocks of 256 rows, the least


def select(strategy, shards, labelled=None, budget=BUDGET):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        return run.select(strategy, shards, budget, labelled=labelled, seed=5)


STRATEGIES = ("k_center", "herding", "badge", "lewis", "bait", "dynamics", "sparse_greedy", "bss")


@given(st.data())
def test_no_pick_is_lost_or_doubled_whenever_a_worker_is_lost(data):
    strategy = labelwise.strategies()[data.draw(st.sampled_from(STRATEGIES))]
    inputs = make_inputs(strategy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        expected = labelwise.select(strategy, BUDGET, **inputs, seed=5)
    calls = st.sets(st.integers(0, 60), max_size=3)
    crew = CrewHere(data.draw(st.integers(1, 4)), data.draw(calls), data.draw(calls))
    shards = held(crew, inputs)
    found = select(strategy, shards)
    assert found.ids.tolist() == expected.ids.tolist()
    assert shards.restored == sum(crew.generations)
    hit = [call for call in crew.before | crew.after if call < len(crew.calls)]
    assert bool(hit) == bool(shards.restored)


def note(shard, value):
    """Remember all values, in order, and tell them."""
    shard.state.setdefault("values", []).append(value)
    return shard.ids[0], tuple(shard.state["values"])


def forget(shard):
    shard.state.clear()


def test_a_worker_that_is_made_again_remembers_what_it_did():
    crew = CrewHere(3)
    shards = held(crew, {"features": np.ones((9, 2))}, 9)
    shards.map(note, "a")
    shards.map(note, "b")
    crew.workers[1] = None
    assert shards.map(note, "c") == [(0, ("a", "b", "c")), (3, ("a", "b", "c")), (6, tuple("abc"))]
    assert crew.generations == [0, 1, 0] and shards.restored == 1


def test_calls_are_forgotten_once_nothing_is_remembered():
    crew = CrewHere(2)
    shards = held(crew, {"features": np.ones((9, 2))}, 9)
    shards.map(note, "a")
    shards.map(forget)
    shards.map(note, "b")
    crew.workers[0] = None
    shards.map(note, "c")
    assert [method for _, method in crew.calls].count("replay") == 1


def test_two_pools_share_a_crew_and_both_are_restored():
    crew = CrewHere(2)
    first, second = (held(crew, {"features": np.full((6, 2), k)}, 6) for k in (1.0, 2.0))
    first.map(note, "first")
    second.map(note, "second")
    crew.workers[0] = None
    assert [seen for _, seen in first.map(note, "x")] == [("first", "x")] * 2
    assert [seen for _, seen in second.map(note, "y")] == [("second", "y")] * 2
    np.testing.assert_array_equal(second.rows(np.array([0]))["features"], [[2.0, 2.0]])
    first.close()
    assert [seen for _, seen in second.map(note, "z")] == [("second", "y", "z")] * 2


class CrewOfTwo(CrewHere):
    """A crew whose other pool hears first that a worker is lost, while the answers are fetched."""

    other = None

    def collect(self, answers):
        if self.other is not None and any(isinstance(answer, LostAnswer) for answer in answers):
            other, self.other = self.other, None
            other.map(note, "other")
        return list(answers)


def test_a_worker_that_was_made_again_for_another_pool_is_left_alone():
    crew = CrewOfTwo(2)
    first, second = (held(crew, {"features": np.ones((6, 2))}, 6) for _ in range(2))
    first.map(note, "a")
    second.map(note, "b")
    crew.other, crew.workers[0] = second, None
    assert [seen for _, seen in first.map(note, "c")] == [("a", "c")] * 2
    assert [seen for _, seen in second.map(note, "d")] == [("b", "other", "d")] * 2
    assert crew.generations == [1, 0]


class CrewOfThreads(CrewHere):
    """A crew whose worker another thread makes again between what is sent to it."""

    replacing = None

    def send(self, number, method, *arguments):
        if method == "call" and self.replacing is None:
            self.replacing = threading.Thread(target=self.replace, args=([number],))
            self.replacing.start()
            self.replacing.join(0.5)  # as long as it may take
        return super().send(number, method, *arguments)

    def collect(self, answers):
        if self.replacing is not None:
            self.replacing.join()
        return super().collect(answers)


def test_what_is_sent_together_goes_to_the_same_worker():
    crew = CrewOfThreads(2)
    shards = held(crew, {"features": np.ones((6, 2))}, 6)
    assert [seen for _, seen in shards.map(note, "a")] == [("a",)] * 2
    assert crew.generations == [1, 0]
    assert [seen for _, seen in shards.map(note, "b")] == [("a", "b")] * 2


def test_a_worker_that_is_lost_every_time_is_given_up():
    crew = CrewHere(2, before=range(4, 1000))  # two open their part and tell what is labelled
    shards = held(crew, {"features": np.ones((9, 2))}, 9)
    with pytest.raises(ClusterFailed, match=rf"part 1 of 2 was lost {RESTORES + 1} times in one"):
        shards.map(note, "a")


def test_sums_and_rows_are_those_of_the_same_blocks_in_one_process():
    features = make_features(700, 3)
    labelled = np.array([699, 3, 400])
    crew = CrewHere(2)
    shards = held(crew, {"features": features}, 700, labelled=labelled)
    left = np.setdiff1d(np.arange(700), labelled)
    blocks = [left[left < 256], left[(left >= 256) & (left < 350)]]
    blocks += [left[(left >= 350) & (left < 606)], left[left >= 606]]
    local = LocalShards(Shard(ids, {"features": features[ids]}) for ids in blocks)
    assert shards.map(total) == local.map(total)
    parts = [LocalShards(local._shards[k : k + 2]).sum(total) for k in (0, 2)]
    assert shards.sum(total) == tuple(map(sum, zip(*parts, strict=True)))
    ids = np.array([698, 0, 405, 0, 351])
    np.testing.assert_array_equal(shards.rows(ids)["features"], features[ids])
    assert shards.rows(ids[:0])["features"].shape == (0, 3)
    np.testing.assert_array_equal(shards.labelled["features"], features[labelled])
    assert shards.ids.tolist() == left.tolist() and len(shards) == 697
    for wrong in (700, 3):  # not there, labelled
        with pytest.raises(UnknownName, match=f"no item of the pool has id {wrong}"):
            shards.rows(np.array([1, wrong]))


def total(shard):
    return float(shard.rows["features"].sum()), len(shard)


def test_more_workers_than_rows_are_no_harm():
    shards = held(CrewHere(5), {"features": np.ones((2, 2))}, 2)
    assert shards.sum(total) == (4.0, 2)


def test_a_part_of_labelled_items_alone_is_left_out():
    shards = held(CrewHere(3), {"features": np.ones((6, 2))}, 6, labelled=np.array([0, 1]))
    assert shards.map(total) == [(4.0, 2), (4.0, 2)]
    assert shards.sum(total) == (8.0, 4)
    assert shards.rows(np.empty(0, int))["features"].shape == (0, 2)


def refuse(shard):
    if 5 in shard.ids:
        raise BadInput("item 5 is odd")


def fail(shard):
    raise KeyError("missing")


def test_an_error_comes_back_as_it_was_raised():
    shards = held(CrewHere(2), {"features": np.ones((6, 2))}, 6)
    with pytest.raises(BadInput, match=r"^item 5 is odd$") as caught:
        shards.map(refuse)
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(KeyError, match="missing") as caught:
        shards.sum(fail)
    assert "in fail" in caught.value.__notes__[0]


class Stubborn(Exception):
    def __reduce__(self):
        raise TypeError("cannot be pickled")


def be_stubborn(shard):
    raise Stubborn("no")


def test_an_error_that_cannot_travel_is_told():
    shards = held(CrewHere(1), {"features": np.ones((6, 2))}, 6)
    with pytest.raises(RuntimeError, match="in be_stubborn"):
        shards.map(be_stubborn)


class Locked:
    """What cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, shard):
        return len(shard)


def test_what_cannot_travel_is_refused():
    given = {"inputs": np.ones((6, 2))}
    told = (
        r"^the learner cannot be sent to other processes \(cannot pickle '_thread.lock' object\);"
    )
    with pytest.raises(BadInput, match=told):
        held(CrewHere(1), given, 6, learner=Locked(), names=("features",))
    shards = held(CrewHere(1), {"features": np.ones((6, 2))}, 6)
    with pytest.raises(BadInput, match="the strategy's Locked cannot be sent to other processes"):
        shards.map(Locked())
    assert shards.map(len) == [6]


@pytest.fixture(name="path")
def file_of_rows(tmp_path):
    np.save(tmp_path / "rows.npy", make_features(700, 3))
    return tmp_path / "rows.npy"


CHANGED = r"^/.*rows\.npy changed while items were picked; select from files that stay$"


def rewrite(path):
    np.save(path, make_features(700, 3, seed=1))
    os.utime(path, ns=(0, 0))  # however coarse the clock of the file system is


def cut(path):
    os.truncate(path, 4000)


@pytest.mark.parametrize("change", [rewrite, cut, os.remove])
def test_a_file_that_changes_is_refused_at_the_end(change, path):
    shards = held(CrewHere(2), {"features": path}, 700)
    shards.map(total)
    shards.check_files()
    change(path)
    with pytest.raises(BadInput, match=CHANGED):
        shards.check_files()


@pytest.mark.parametrize("change", [cut, os.remove])
def test_an_error_for_a_file_that_changed_says_that_it_did(change, path):
    shards = held(CrewHere(2), {"features": path}, 700)
    change(path)
    with pytest.raises(BadInput, match=CHANGED):
        shards.map(total)
    with pytest.raises(BadInput, match=CHANGED):
        shards.rows(np.array([690]))


def test_a_part_is_not_restored_from_a_file_that_changed(path):
    crew = CrewHere(2)
    shards = held(crew, {"features": path}, 700)
    shards.map(note, "a")
    rewrite(path)
    crew.workers[1] = None
    with pytest.raises(BadInput, match=CHANGED):
        shards.map(note, "b")


def test_a_file_that_is_added_to_a_folder_counts_as_a_change(path):
    crew = CrewHere(2)
    shards = held(crew, {"features": path.parent}, 700)
    np.save(path.parent / "another.npy", make_features(10, 3))
    shards.map(total)
    shards.check_files()  # nobody reads it
    crew.workers[1] = None
    with pytest.raises(BadInput, match=r"another\.npy changed while items were picked"):
        shards.map(total)


def test_a_file_that_a_worker_does_not_see_is_named_with_the_machine(tmp_path):
    with pytest.raises(UnknownName, match=r"there is no file .*rows\.npy \(as seen from .+\)"):
        held(CrewHere(2), {"features": str(tmp_path / "rows.npy")}, 10)


class Doubling:
    """A learner whose features are twice the inputs, with their sum beside them."""

    def __init__(self):
        self.blocks = 0

    def represent(self, inputs, names):
        flat = inputs.reshape(len(inputs), -1)
        features = np.concatenate([2 * flat, flat.sum(axis=1, keepdims=True)], axis=1)
        return (
            {"features": features, "outputs": flat[:, :1]}
            if "outputs" in names
            else {"features": features}
        )


def test_a_learner_computes_the_rows_where_the_inputs_are(tmp_path):
    images = make_features(700, 6).reshape(700, 2, 3)
    np.save(tmp_path / "images.npy", images)
    crew = CrewHere(2, before=[7])
    learner, names = Doubling(), ("features", "outputs")
    inputs = {"inputs": tmp_path / "images.npy"}
    known = np.array([600, 5])
    shards = held(crew, inputs, 700, learner=learner, names=names, labelled=known)
    rows = learner.represent(images, names)
    for name in names:
        found = np.concatenate(shards.map(lambda shard: shard.rows[name]))  # noqa: B023
        np.testing.assert_array_equal(found, np.delete(rows[name], known, axis=0))
        np.testing.assert_array_equal(shards.labelled[name], rows[name][known])
    assert shards.restored == 1


def test_a_torch_learner_is_shipped_with_what_it_has_learnt():
    torch = pytest.importorskip("torch")
    inputs = make_features(300, 6).astype(np.float32)

    def make_module():
        hidden = torch.nn.Linear(6, 5), torch.nn.ReLU()
        return torch.nn.Sequential(*hidden, torch.nn.Linear(5, 2))

    learner = labelwise.TorchLearner(make_module, head="2", epochs=2, device="cpu")
    learner.fit(inputs[:50], (inputs[:50, 0] > 0).astype(int), seed=0)
    names = ("features", "probabilities")
    shards = held(CrewHere(2), {"inputs": inputs}, 300, learner=learner, names=names)
    for name, expected in learner.represent(inputs, names).items():
        found = np.concatenate(shards.map(lambda shard: shard.rows[name]))  # noqa: B023
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_pieces_stay_whole_and_in_order():
    features = make_features(1000, 3)
    cuts = [0, 10, 300, 310, 700, 1000]
    pieces = [{"features": features[a:b]} for a, b in itertools.pairwise(cuts)]
    given = [(len(piece["features"]), piece) for piece in pieces]
    crew = CrewHere(3, after=[4])
    shards = held(crew, {}, 1000, pieces=given, ids=np.arange(1000) * 2)
    found = np.concatenate(shards.map(lambda shard: shard.rows["features"]))
    np.testing.assert_array_equal(found, features)
    assert shards.map(lambda shard: int(shard.ids[0]) // 2)[0] == 0
    np.testing.assert_array_equal(shards.rows(np.array([1998]))["features"], features[999:])


def test_progress_says_that_parts_are_restored():
    told = []
    crew = CrewHere(2)
    progress = lambda *call: told.append(call)  # noqa: E731
    shards = held(crew, {"features": np.ones((6, 2))}, 6, progress=progress)
    crew.workers[0] = None
    shards.map(note, "a")
    assert told == [("restoring 1 of 2 parts", 0, 1), ("restoring 1 of 2 parts", 1, 1)]


def test_what_travels_is_counted():
    shards = held(CrewHere(3), {"features": np.ones((600, 20))}, 600)
    shards.sum(total)
    shards.sum(total)
    shards.rows(np.arange(10))
    assert shards.traffic["total"].calls == 2
    assert 100 < shards.traffic["total"].sent < 2000
    assert 60 < shards.traffic["total"].received < 1000
    assert 1600 < shards.traffic["rows"].received < 2200


@pytest.mark.parametrize("name", ["k_center", "badge", "entropy", "lewis"])
def test_a_pick_does_not_cost_a_call(name):
    strategy = labelwise.strategies()[name]
    shards = held(CrewHere(8), make_inputs(strategy, n=4000), 4000)
    select(strategy, shards, budget=400)
    assert sum(cost.calls for cost in shards.traffic.values()) < 400 / 10


def double_and_keep(shard, values):
    values *= 2
    shard.state["kept"] = values
    return values


def kept(shard):
    return shard.state["kept"].max()


@pytest.mark.parametrize("count", [3, 100_000], ids=["small", "large"])
def test_arrays_that_travel_may_be_written_to(count):
    shards = held(CrewHere(2), {"features": np.ones((6, 2))}, 6)
    given = np.ones(count)
    first, second = shards.map(double_and_keep, given)
    first += 1
    assert (given == 1).all() and (second == 2).all() and (first == 3).all()
    assert shards.map(kept) == [2, 2]
    assert shards.traffic["double_and_keep"].received >= 2 * first.nbytes
