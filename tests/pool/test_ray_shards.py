"""Selections on Ray: the picks of one process, whatever happens to the cluster.

One small cluster serves all tests. Clusters that lose a node or their head run in processes of
their own (`tests.pool.ray_clusters`), because Ray ends a process that has lost its head. That
every strategy gives the same picks is in ``tests/strategies/test_contract_on_ray.py``.
"""

import doctest
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli import run as run_command
from labelwise.errors import BadInput, LabelwiseWarning
from labelwise.pool.ray import parts as ray_parts
from labelwise.selection import run
from tests.conftest import make_features, make_probabilities
from tests.pool.object_store import object_store
from tests.pool.test_shards import write_parquet

ray = pytest.importorskip("ray")
from labelwise.pool.ray import shards as ray_shards  # noqa: E402
from labelwise.pool.ray.shards import (  # noqa: E402
    ClusterFailed,
    RayActors,
    RayShards,
    connect,
    dataset_rows,
)
from tests.pool.ray_fixtures import two_actors  # noqa: E402, F401
from tests.pool.ray_heads import in_session  # noqa: E402

STRATEGIES = labelwise.strategies()
pytestmark = pytest.mark.xdist_group("ray")
ROOT = Path(__file__).resolve().parent.parent.parent


def select(strategy, budget=9, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelwiseWarning)
        return labelwise.select(strategy, budget, **kwargs, seed=5)


def test_the_examples_run(actors):
    """First: Ray may keep a CPU for an actor that another test ends while it starts."""
    found = doctest.testmod(ray_shards)
    assert found.attempted > 0 and found.failed == 0


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_the_actors_read_the_files_by_themselves(actors, kind, tmp_path):
    rows = make_probabilities(20_000, 40).astype(np.float32)
    path = tmp_path / f"rows.{kind}"
    np.save(path, rows) if kind == "npy" else write_parquet(path, rows, group=3000)
    shards = RayShards(actors, {"probabilities": path}, len(rows))
    found = run.select(STRATEGIES["entropy"], shards, 50)
    shards.close()
    assert found.ids.tolist() == select("entropy", 50, probabilities=path).ids.tolist()
    travelled = sum(part.sent + part.received for part in shards.traffic.values())
    assert travelled < rows.nbytes / 50


@pytest.mark.parametrize("given", ["parts", "parts/rows-*.npy"])
def test_a_folder_or_a_pattern_of_files_is_one_pool(actors, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the actors are elsewhere
    Path("parts").mkdir()
    rows = make_features(1000, 6).astype(np.float32)
    for number, part in enumerate([rows[:10], rows[10:640], rows[640:]]):
        np.save(f"parts/rows-{number}.npy", part)
    found = select("k_center", 30, features=given, labelled=[5, 700], on=actors)
    expected = select("k_center", 30, features=rows, labelled=[5, 700])
    assert found.ids.tolist() == expected.ids.tolist()


def test_the_actors_fetch_their_parts_from_object_storage(actors):
    pytest.importorskip("pyarrow")
    rows = make_features(4000, 8).astype(np.float32)
    content = io.BytesIO()
    np.save(content, rows)
    with object_store() as store:
        store.objects["pool/rows.npy"] = content.getvalue()
        url = store.url("pool/rows.npy")
        found = select("lewis", 30, features=url, on=actors)
        assert found.ids.tolist() == select("lewis", 30, features=rows).ids.tolist()
        shards = RayShards(actors, {"features": url}, len(rows))
        shards.map(touch)
        store.fetched.clear()
        shards.map(touch)
        assert store.fetched["pool/rows.npy"] == rows.nbytes  # each its part, and nothing twice


def touch(shard):
    return shard.rows["features"].sum()


def test_own_ids_and_several_models_are_as_in_one_process(actors, tmp_path):
    features = [make_features(500, d, seed=d).astype(np.float32) for d in (3, 5)]
    np.save(tmp_path / "second.npy", features[1])
    given = [features[0], str(tmp_path / "second.npy")]
    ids = np.random.default_rng(0).permutation(500) * 10
    named = {"features": given, "ids": ids, "labelled": ids[[400, 3]]}
    assert select("lewis", **named, on=actors).ids.tolist() == select("lewis", **named).ids.tolist()


class Killing:
    """Shards that lose a process before some calls, by the number of the call."""

    def __init__(self, shards, actors, calls):
        self._shards, self._actors, self._calls, self._made = shards, actors, calls, 0

    def __getattr__(self, name):
        value = getattr(self._shards, name)
        if name not in ("map", "sum", "rows"):
            return value
        self._made += 1
        if self._made in self._calls:
            os.kill(self._actors.processes[self._calls[self._made]].pid, signal.SIGKILL)
        return value

    def __len__(self):
        return len(self._shards)


@pytest.mark.parametrize(
    ("name", "options", "calls"),
    [("k_center", {}, {6: 0}), ("herding", {}, {30: 1}), ("lewis", {"p": 1.0}, {8: 1})],
)
def test_a_process_killed_by_its_id_changes_nothing(actors, name, options, calls):
    features = make_features(3000, 6).astype(np.float32)
    strategy = STRATEGIES[name].with_options(**options)
    expected = select(strategy, 200, features=features)
    shards = RayShards(actors, {"features": features}, len(features))
    victims = [actors.processes[number] for number in calls.values()]
    found = run.select(strategy, Killing(shards, actors, calls), 200, seed=5)
    assert found.ids.tolist() == expected.ids.tolist()
    assert len(set(found.ids.tolist())) == 200
    assert shards.restored == 1 and not set(victims) & set(actors.processes)
    shards.close()


def count_and_die(shard, path):
    """Count the calls beside the rows; the first process to hold item 0 ends here."""
    shard.state["calls"] = shard.state.get("calls", 0) + 1
    if 0 in shard.ids and not os.path.exists(path):
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return shard.state["calls"]


def count(shard):
    shard.state["calls"] = shard.state.get("calls", 0) + 1


def test_a_process_that_ends_within_a_call_does_it_once(actors, tmp_path):
    shards = RayShards(actors, {"features": np.ones((10, 2))}, 10)
    shards.map(count)
    shards.map(count)
    assert shards.map(count_and_die, str(tmp_path / "died")) == [3, 3]
    assert shards.restored == 1


def test_two_selections_at_once_restore_a_process_once(actors):
    features, picks = make_features(3000, 6).astype(np.float32), []
    expected = labelwise.select("herding", 60, features=features).ids.tolist()
    before, together = sum(actors.generations), threading.Barrier(2)

    def work():
        def progress(stage, done, total):
            if stage == "herding" and done == 20 and together.wait(60) == 0:
                os.kill(actors.processes[0].pid, signal.SIGKILL)

        found = labelwise.select("herding", 60, features=features, on=actors, progress=progress)
        picks.append(found.ids.tolist())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert picks == [expected] * 2 and sum(actors.generations) == before + 1


def test_an_actor_that_was_made_again_since_is_left_alone(actors):
    actors.replace([0])
    processes, generations = list(actors.processes), list(actors.generations)
    actors.replace([0], [generations[0] - 1])
    assert actors.processes == processes and actors.generations == generations


def die(shard):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_ends_every_time_is_given_up(actors, monkeypatch):
    monkeypatch.setattr(ray_parts, "RESTORES", 0)
    shards = RayShards(actors, {"features": np.ones((10, 2))}, 10)
    with pytest.raises(ClusterFailed, match=r"part 1 of 2 was lost 1 times in one call \(.+\);"):
        shards.map(die)
    actors.replace([0, 1])  # for the tests that follow


def test_a_nan_is_refused_and_its_item_named(actors):
    features = make_features(60, 3)
    features[41] = np.nan
    with pytest.raises(BadInput, match="features of item 41 is NaN"):
        select("k_center", features=features, on=actors)


def test_a_strategy_of_ones_own_travels_with_its_functions(actors):
    own = labelwise.ScoreStrategy(
        name="first_column",
        needs=("features",),
        good_for="",
        reference="",
        score=lambda rows, labelled: rows["features"][:, 0],
    )
    features = make_features(300, 2)
    picks = select(own, 4, features=features, on=actors)
    assert picks.ids.tolist() == np.argsort(-features[:, 0])[:4].tolist()


def test_a_learner_is_shipped_and_computes_in_the_actors(actors, tmp_path):
    linear_model = pytest.importorskip("sklearn.linear_model")
    inputs = make_features(400, 5)
    learner = labelwise.SklearnLearner(linear_model.LogisticRegression)
    learner.fit(inputs[:60], (inputs[:60, 0] > 0).astype(int), seed=0)
    names = ("features", "probabilities")
    np.save(tmp_path / "inputs.npy", inputs)
    given = {"inputs": tmp_path / "inputs.npy"}
    shards = RayShards(actors, given, 400, learner=learner, names=names)
    found = run.select(STRATEGIES["badge"], shards, 30, seed=5)
    expected = select("badge", 30, **learner.represent(inputs, names))
    assert found.ids.tolist() == expected.ids.tolist()


# Ray Data sets options of its own that it warns of.
with_ray_data = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")


@pytest.mark.slow
@with_ray_data
def test_rows_come_from_ray_data(actors):
    data = pytest.importorskip("ray.data")
    features, ids = make_features(300, 4), np.arange(300) * 3
    table = np.column_stack([ids, features])
    dataset = data.from_numpy([table[:100], table[100:130], table[130:]])
    split = lambda batch: {"id": batch["data"][:, 0], "features": batch["data"][:, 1:]}  # noqa: E731
    dataset = dataset.map_batches(split).materialize()
    shards = RayShards(actors, **dataset_rows(dataset), labelled=np.array([33]))
    found = run.select(STRATEGIES["k_center"], shards, 20, labelled=shards.labelled, seed=5)
    expected = select("k_center", 20, features=features, ids=ids, labelled=[33])
    assert found.ids.tolist() == expected.ids.tolist()


@pytest.mark.slow
@with_ray_data
def test_a_dataset_without_free_cpus_says_so(actors):
    dataset = pytest.importorskip("ray.data").from_numpy(np.ones((20, 2)))
    with (
        RayActors(2),  # all of the cluster, with the module's own
        pytest.raises(ClusterFailed, match="no CPU of the cluster was free within 3 s; compute"),
    ):
        dataset_rows(dataset, seconds=3)


def test_actors_without_room_say_so(actors):
    message = r"\d of 3 actors could not start .* \d of the cluster's 4 CPUs are free"
    with pytest.raises(ClusterFailed, match=message):
        RayActors(3, start_seconds=2)


def test_actors_without_a_gpu_say_so(actors):
    message = (
        r"1 of 1 actors .* needs a CPU and a GPU, .* CPUs and 0 of the cluster's 0 GPUs are free"
    )
    with pytest.raises(ClusterFailed, match=message):
        RayActors(1, gpus=1, start_seconds=2)


def test_the_command_selects_on_ray(actors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("f.npy", make_features(300, 4).astype(np.float32))
    command = ["select", "f.npy", "-s", "k_center", "-b", "20", "-o"]
    assert run_command([*command, "here.csv"]) == 0
    assert run_command([*command, "there.csv", "--on", "ray", "--actors", "1"]) == 0
    assert Path("there.csv").read_text() == Path("here.csv").read_text()


@pytest.mark.slow
@with_ray_data
def test_the_examples_of_the_page_run(actors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "ray.md").read_text()
    examples = re.findall(r"```python on-ray\n(.*?)```", text, re.S)
    names = {}
    for example in examples:
        exec(compile(example, "ray.md", "exec"), names)
    assert len(examples) == 4
    assert names["picks"].ids.tolist() == names["same"].ids.tolist()


def stillborn(path, starts):
    """Actors that note their starts in a file; the process of the first ones ends as it starts."""

    class Stillborn(ray_shards._Actor):
        def hello(self):
            with path.open("a") as file:
                file.write("x")
            if len(path.read_text()) < starts:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().hello()

    return ray.remote(Stillborn)


def test_an_actor_that_is_lost_while_it_starts_is_made_again(actors, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_shards, "_REMOTE", stillborn(tmp_path / "starts", 3))
    with RayActors(1) as others:
        assert others.generations == [2] and others.processes[0].pid > 0
        assert others.collect([others.send(0, "close", 0)]) == [None]


def test_an_actor_that_is_lost_at_every_start_is_given_up(actors, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_shards, "RESTORES", 1)
    monkeypatch.setattr(ray_shards, "_REMOTE", stillborn(tmp_path / "starts", 1000))
    with pytest.raises(ClusterFailed, match=r"an actor ended while it started \(.+\); every node"):
        RayActors(1)
    assert len((tmp_path / "starts").read_text()) == 2


def test_what_is_lost_with_its_node_is_not_made_again_here(actors, monkeypatch):
    """Ray ends a process whose own node has ended, some seconds later; so there is no time."""
    here = ray.get_runtime_context().get_node_id()
    nodes = [node | {"Alive": node["NodeID"] != here} for node in ray.nodes()]
    monkeypatch.setattr(ray_shards, "_nodes", lambda: nodes)
    before = actors.generations[0]
    with pytest.raises(ClusterFailed, match="Ray has ended on this machine; look for what ended"):
        actors.replace([0])
    assert actors.generations[0] == before
    with pytest.raises(ClusterFailed, match="Ray has ended on this machine; look for what ended"):
        RayActors(4, start_seconds=2)  # which waits for room
    monkeypatch.undo()
    assert len(select("k_center", 2, features=np.eye(5), on=actors)) == 2


def test_actors_that_have_ended_say_so(actors):
    with RayActors(1) as others:
        assert len(others) == 1
    with pytest.raises(ClusterFailed, match="these actors have ended; start new ones"):
        select("k_center", 2, features=np.eye(5), on=others)


def failing(times, error, tries):
    """In the place of ``ray.init``: it fails some times."""

    def init(**_):
        tries.append(1)
        if len(tries) <= times:
            raise error

    return init


NO_SERVER = ConnectionError("Initialization failure from server:\nTraceback ...\nno process")
SLOW_START = Exception("The current node timed out during startup.")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("error", [NO_SERVER, SLOW_START], ids=["client", "here"])
def test_what_fails_now_and_then_is_tried_twice(times, error, monkeypatch):
    tries = []
    monkeypatch.setattr(ray, "init", failing(times, error, tries))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        on = f"ray://127.0.0.1:{server.getsockname()[1]}" if error is NO_SERVER else "ray"
        if times == 1:
            connect(on)
        else:
            with pytest.raises(ClusterFailed, match=r"(cannot join .*: no p|cannot be started)"):
                connect(on)
    assert len(tries) == 2


def test_a_cluster_that_refuses_is_not_asked_twice(monkeypatch):
    tries = []
    monkeypatch.setattr(ray, "init", failing(9, RuntimeError("Version mismatch: 1 and 2"), tries))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(ClusterFailed, match=r"\(Version mismatch: 1 and 2\); it must run the"):
            connect(f"ray:127.0.0.1:{server.getsockname()[1]}")
    assert len(tries) == 1


def test_a_file_that_changes_while_items_are_picked_is_refused(actors, tmp_path):
    path = tmp_path / "f.npy"
    features = make_features(300, 4)
    np.save(path, features)

    def replace(stage, done, total):
        if stage == "herding" and done == 3:
            np.save(tmp_path / "other.npy", features[::-1])
            os.replace(tmp_path / "other.npy", path)

    with pytest.raises(BadInput, match=r"f\.npy changed while items were picked; select from"):
        select("herding", 9, features=path, on=actors, progress=replace)
    assert len(select("herding", 9, features=path, on=actors)) == 9


def niceness(shard):
    return os.nice(0)


def test_actors_wait_for_other_programs_no_more_than_this_process_does(actors):
    shards = RayShards(actors, {"features": np.ones((6, 2))}, 6)
    assert max(shards.map(niceness)) <= os.nice(0)


def test_print_stays_what_it_was(actors):
    rows = make_features(40, 3)
    labelwise.select("lewis", 3, features=rows, on=actors)
    assert type(print).__name__ == "builtin_function_or_method"


def test_another_cluster_than_the_joined_one_is_refused(actors):
    with pytest.raises(BadInput, match=r"this process has joined .*; call ray.shutdown\(\)"):
        connect("ray:127.0.0.1:9")
    with pytest.raises(BadInput, match=r"before it joins the one at ray://127.0.0.1:9"):
        connect("ray://127.0.0.1:9")
    _, port = ray.get_runtime_context().gcs_address.rsplit(":", 1)
    connect("ray:auto")
    connect(f"ray:localhost:{port}")  # the same by another name


def test_without_ray_the_command_to_install_it_is_named(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((4, 2)))
    code = "import sys; sys.modules['ray'] = None; from labelwise.cli import run; sys.exit(run(\n"
    code += "'select f.npy -s random -b 1 -o p.csv --on ray'.split()))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("labelwise: selecting on Ray needs ray")
    assert told.endswith("run pip install 'labelwise[ray]'")


def test_a_cluster_that_does_not_answer_is_named(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((4, 2)))
    where = ["--on", "ray:127.0.0.1:9"]
    command = ["labelwise", "select", "f.npy", "-s", "random", "-b", "1", "-o", "p.csv", *where]
    command[0] = str(Path(sys.executable).parent / "labelwise")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "no Ray cluster answers at 127.0.0.1:9; check the address" in done.stderr


@pytest.mark.parametrize("on", ["spark", "rays", ""])
def test_what_is_no_cluster_is_refused(on):
    with pytest.raises(BadInput, match="on must be ray, ray:HOST:PORT or ray://HOST:PORT; got"):
        select("k_center", 1, features=np.eye(3), on=on)


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_actors_are_a_whole_number(count):
    with pytest.raises(BadInput, match="actors must be a whole number, 1 or more; got"):
        select("k_center", 1, features=np.eye(3), on="ray", actors=count)


def test_actors_without_a_cluster_are_refused():
    with pytest.raises(BadInput, match="actors is 2 but on names no cluster; give on='ray' too"):
        select("k_center", 1, features=np.eye(3), actors=2)


@contextmanager
def alone(command, environment=None, folder=ROOT):
    """A command whose processes end with it: those of a broken cluster would take a minute more."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    named = {"cwd": folder, "env": environment, "start_new_session": True}
    process = subprocess.Popen(command, **named, **pipes)
    try:
        yield process
    finally:
        for number in in_session(process.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ("node", "the same picks, restored 1"),
        ("no room", r"1 of 2 actors could not start within \d+ s; each needs a CPU, and 0 of"),
        ("head", "the head of the Ray cluster"),
        ("head and actor", r"the head of the Ray cluster, \S+, has not answered for \d+ s; start"),
        ("silent head", r"the head of the Ray cluster, \S+, has not answered for \d+ s; start"),
    ],
)
def test_a_cluster_that_loses_a_node_goes_on_or_says_why(event, answer, tmp_path):
    command = [sys.executable, "-m", "tests.pool.ray_clusters", event, str(tmp_path)]
    with alone(command) as process:
        out, errors = process.communicate(timeout=900)
    assert re.search(answer, out), out + errors
    if "head" in event:  # the others are as fast as the machine starts processes
        assert float(out.split("seconds")[1].split()[0]) < 60
