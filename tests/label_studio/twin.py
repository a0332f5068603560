"""A stand-in for a Label Studio server: the few calls that the bridge makes, on loopback.

It answers as Label Studio 1.23 does, checked against the real one by `test_live.py`.
Requests can be made to fail, and are remembered.
"""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np

TOKEN = "0123456789abcdef0123456789abcdef01234567"
TEXTS = (
    '<View><Text name="text" value="$body"/><Choices name="mood" toName="text">'
    '<Choice value="sport"/><Choice value="food"/></Choices></View>'
)
PICTURES = (
    '<View><Image name="image" value="$image"/><Choices name="digit" toName="image">'
    '<Choice value="zero"/><Choice value="one"/></Choices></View>'
)

WORDS = {"sport": "ball goal team match player run", "food": "soup bread salt cook oven pan"}


def texts(count, seed=0):
    """Texts of eight words, every other one about food."""
    draw = np.random.default_rng(seed)
    kinds = [("sport", "food")[n % 2] for n in range(count)]
    return [{"body": " ".join(draw.choice(WORDS[kind].split(), 8)), "kind": kind} for kind in kinds]


class Twin:
    """One server with one project."""

    def __init__(self, config=TEXTS, number=5):
        self.number, self.files = number, {}
        self.project = {
            "id": number,
            "title": "a project",
            "label_config": config,
            "maximum_annotations": 1,
            "overlap_cohort_percentage": 100,
            "model_version": "",
            "sampling": "Sequential sampling",
        }
        self.tasks, self.annotations, self.predictions = {}, {}, []
        self.people = [{"id": 1, "email": "ann@example.org"}, {"id": 2, "email": "bob@example.org"}]
        self.failing, self.calls, self.headers = [], Counter(), []
        self.tokens = {f"Token {TOKEN}"}
        self._clock, self._next = 0, 101
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    # What people do.

    def add(self, *data):
        """Import tasks; their numbers."""
        new = dict(enumerate(data, self._next))
        self._next += len(new)  # a number is never given twice
        self.tasks |= new
        return list(new)

    def annotate(self, task, label, by=1, seconds=2.0, change=None):
        """Annotate a task (None: cancel it), or change an annotation; its number."""
        self._clock += 1
        number = change or len(self.annotations) + 1000
        control = "mood" if "mood" in self.project["label_config"] else "digit"
        result = [{"from_name": control, "type": "choices", "value": {"choices": [label]}}]
        self.annotations[number] = {
            "id": number,
            "task": task,
            "completed_by": by,
            "result": [] if label is None else result,
            "was_cancelled": label is None,
            "lead_time": seconds,
            "updated_at": f"2026-01-01T00:00:{self._clock:02d}Z",
        }
        return number

    def delete_task(self, task):
        del self.tasks[task]
        self.predictions = [p for p in self.predictions if p["task"] != task]
        for number in [n for n, held in self.annotations.items() if held["task"] == task]:
            del self.annotations[number]

    def queue(self):
        """The tasks in the order in which "Uncertainty sampling" would serve them."""
        version = self.project["model_version"]
        done = {held["task"] for held in self.annotations.values()}
        mine = [p for p in self.predictions if p["model_version"] == version]
        return [p["task"] for p in sorted(mine, key=lambda p: p["score"]) if p["task"] not in done]

    def writes(self):
        """How many calls changed something."""
        return sum(count for (method, _), count in self.calls.items() if method != "GET")

    # What it answers.

    def answer(self, method, path, query, body):
        base = f"/api/projects/{self.number}/"
        if method == "GET" and path in self.files:
            return 200, self.files[path]
        if path == base:
            self.project |= body or {}
            return 200, {**self.project, "task_number": len(self.tasks)}
        if path == base + "export":
            return 200, self._export(query)
        if path == "/api/tasks":
            (wanted,) = json.loads(query["query"][0])["filters"]["items"]
            found = sorted(number for number in self.tasks if number > wanted["value"])[:50]
            return 200, {"tasks": [{"id": number, "data": self.tasks[number]} for number in found]}
        if path == "/api/users/":
            return 200, self.people
        if path == base + "model-versions/" and method == "GET":
            return 200, dict(Counter(p["model_version"] for p in self.predictions))
        if path == base + "model-versions/":
            gone = body["model_version"]
            self.predictions = [p for p in self.predictions if p["model_version"] != gone]
            return 200, {}
        if path == base + "import/predictions":
            if any(p["task"] not in self.tasks for p in body):
                return 400, {"detail": "Validation error"}
            self.predictions += body
            return 201, {"created": len(body)}
        return 404, {"detail": "Not found."}

    def _export(self, query):
        wanted = {int(number) for number in query.get("ids[]", ())}
        found = []
        for number, data in self.tasks.items():
            mine = [held for held in self.annotations.values() if held["task"] == number]
            if number in wanted or (not wanted and mine):
                found.append({"id": number, "data": data, "annotations": mine})
        return found


def _handler(twin):
    class Handler(BaseHTTPRequestHandler):
        def _serve(self):
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            twin.calls[self.command, parts.path] += 1
            twin.headers.append((parts.path, self.headers.get("Authorization")))
            for failure in twin.failing:
                if failure[:2] == [self.command, parts.path] and failure[3]:
                    failure[3] -= 1
                    if failure[2] is None:
                        return self.close_connection
                    return self._send(failure[2], failure[4])
            if self.headers.get("Authorization") not in twin.tokens:
                return self._send(401, {"detail": "Invalid token."})
            return self._send(*twin.answer(self.command, parts.path, parse_qs(parts.query), body))

        def _send(self, status, answer):
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", raw.decode().strip('"'))
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, *args):
            pass

    return Handler


def fail(twin, method, path, status, times=1, answer=b"{}"):
    """Have the next calls fail: with a status, or by hanging up (None)."""
    twin.failing.append([method, path, status, times, answer])
