"""A campaign without torch: it starts, takes labels, trains, asks again and exports."""

import subprocess
import sys

SCRIPT = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class WithoutTorch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, WithoutTorch())
from fastapi.testclient import TestClient
from labelwise.campaign.project import Project
from labelwise.web.app import create_app
from labelwise.web.worker import Worker

rows = "".join(f"plant {n},{n},{n % 7}\\n" for n in range(40))
Path("plants.csv").write_text("name,height,age\\n" + rows)
Project.start("plants.csv", home="c", classes=["oak", "fir"], batch=10)
reports = []
worker = Worker(Path("c"), lambda **report: reports.append(report))
while worker.run_next_step():
    pass
worker.warm_up()
assert not any("error" in report for report in reports), reports
project = Project.open("c")
with TestClient(create_app(project, trains=False), base_url="http://127.0.0.1") as client:
    csrf = client.get("/api/session", params={"name": "ann"}).json()["csrf"]
    client.headers.update({"X-Annotator": "ann", "X-Labelwise-Csrf": csrf})
    items = client.post("/api/lend", json={"count": 10}).json()["items"]
    labels = [{"id": item["id"], "label": "oak" if item["id"] % 2 else "fir"} for item in items]
    assert client.post("/api/labels", json={"labels": labels}).status_code == 200
    while worker.run_next_step():
        pass
    state = client.get("/api/state").json()
    assert "error" not in state["training"] or not state["training"]["error"], state["training"]
    assert len(client.get("/api/export").text.splitlines()) == len(items) + 1
ledger = project.open_record().ledger()
assert ledger.trainings and len(ledger.batches) == 2 and ledger.failure is None
assert "torch" not in sys.modules
"""


def test_a_campaign_runs_without_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
