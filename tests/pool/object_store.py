"""As much of S3 as reading takes: a server in this machine that answers what pyarrow asks it."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectStore:
    """Objects by bucket and key, such as ``"bucket/folder/rows.npy"``.

    ``fetched`` counts the bytes of all answers to GET, by object: what a client that lost patience
    asks for again counts once. ``changed`` is the age of all.
    """

    def __init__(self, port):
        self.objects, self.fetched, self._asked, self._port = {}, {}, set(), port
        self.changed = "Thu, 01 Jan 2026 00:00:00 GMT"

    def url(self, path):
        """For pyarrow: where the server is, and a key and a secret, which it does not look at."""
        where = f"endpoint_override=127.0.0.1:{self._port}&scheme=http&region=us-east-1"
        return f"s3://key:secret@{path}?{where}"

    def answer(self, target, wanted):
        """Status, headers and content for a request, with a range of bytes or without."""
        asked = urlsplit(target)
        path, query = unquote(asked.path).strip("/"), parse_qs(asked.query)
        if "list-type" in query:
            return 200, {}, self._list(path, query.get("prefix", [""])[0])
        content = self.objects.get(path)
        if content is None:
            return 404, {}, b""
        if wanted is None:
            return 200, {}, content
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups()
        some = content[int(first) : int(last) + 1]
        return 206, {"Content-Range": f"bytes {first}-{last}/{len(content)}"}, some

    def count(self, target, asked, length):
        """Count an answer to what was asked, which has a name of its own."""
        path = unquote(urlsplit(target).path).strip("/")
        if asked is None or asked not in self._asked:
            self.fetched[path] = self.fetched.get(path, 0) + length
        self._asked.add(asked)

    def _list(self, bucket, prefix):
        keys = sorted(path for path in self.objects if path.startswith(f"{bucket}/{prefix}"))
        entries = "".join(
            f"<Contents><Key>{escape(path.split('/', 1)[1])}</Key><Size>{len(self.objects[path])}"
            "</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
            for path in keys
        )
        head = f"<Name>{bucket}</Name><KeyCount>{len(keys)}</KeyCount>"
        end = "<IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{end}{entries}</ListBucketResult>".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = self._head()
        with self.server.lock:
            asked = self.headers.get("amz-sdk-invocation-id")
            self.server.store.count(self.path, asked, len(content))
        self.wfile.write(content)

    def do_HEAD(self):
        self._head()

    def _head(self):
        status, headers, content = self.server.store.answer(self.path, self.headers.get("Range"))
        self.send_response(status)
        facts = {"Content-Length": str(len(content)), "Last-Modified": self.server.store.changed}
        for name, value in {**headers, **facts, "ETag": '"1"'}.items():
            self.send_header(name, value)
        self.end_headers()
        return content

    def log_message(self, *_):
        """Nothing on the terminal."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections beyond it would be refused for a second


@contextmanager
def object_store():
    """A store for as long as it is needed."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads, server.lock = True, threading.Lock()
        server.store = ObjectStore(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.store
        finally:
            server.shutdown()
            thread.join()
