"""The guard before the server: hosts, tokens, origins, bodies and headers."""

import json
import stat
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from labelwise.errors import BadInput
from labelwise.web import security
from labelwise.web.security import (
    MOST_DELAYED,
    AccessPolicy,
    AllowedHosts,
    RequestGuard,
    check_server_token,
    is_loopback,
    make_cookie_name,
    read_server_key,
)
from tests.web import loops

KEY = bytes(range(32))
TOKEN = "open-sesame-please"


async def echo(scope, receive, send):
    """Answers with the body it was given."""
    body, more = b"", scope["method"] not in security.SAFE_METHODS
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await JSONResponse({"path": scope["path"], "body": body.decode()})(scope, receive, send)


def client(policy, **named):
    return TestClient(
        RequestGuard(echo, policy),
        base_url="http://127.0.0.1:8600",
        follow_redirects=False,
        **named,
    )


def plain(**changed):
    return AccessPolicy(key=KEY, **changed)


def csrf(policy):
    return {"X-Labelwise-Csrf": policy.csrf_code}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host):
    assert is_loopback(host)
    check_server_token(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "labels.example"])
def test_any_other_address_is_refused_without_a_token(host):
    with pytest.raises(BadInput, match="a token is needed; add --token"):
        check_server_token(host, None)
    check_server_token(host, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "has a blank in it", "nul\x00character", "ä" * 12])
def test_a_token_that_is_short_or_does_not_fit_a_header_is_refused(token):
    with pytest.raises(BadInput, match="8 to 200"):
        check_server_token("0.0.0.0", token)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8600", "localhost", "LOCALHOST:9", "[::1]:8600"],
)
def test_a_loopback_server_answers_under_its_own_names(host):
    answer = client(plain()).get("/", headers={"Host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8600",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "8.8.8.8",
        "",
        "127.0.0.1:8600:1",
        "localhost/evil",
    ],
)
def test_a_name_pointed_at_this_machine_gets_nothing(host):
    answer = client(plain()).get("/", headers={"Host": host})
    assert answer.status_code == 421
    assert "is not called" in answer.json()["error"]


def test_a_server_on_all_addresses_answers_under_addresses_but_not_under_foreign_names():
    hosts = AllowedHosts.for_server("0.0.0.0", ["Labels.Example"])
    assert (
        hosts.allows_host("192.168.1.7:8600")
        and hosts.allows_host("[fe80::1]")
        and hosts.allows_host("localhost")
    )
    assert hosts.allows_host("labels.example:443")
    assert not hosts.allows_host("evil.example")


def test_without_the_token_nothing_is_answered():
    browser = client(plain(token=TOKEN))
    for path in ("/", "/static/app.js", "/api/state", "/api/openapi.json"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "path" not in answer.text
    assert browser.get("/api/state").json() == {
        "error": "this server needs its token; open the address with ?token= in it"
    }


def test_the_token_is_given_once_and_leaves_the_address():
    browser = client(plain(token=TOKEN))
    answer = browser.get("/?token=" + TOKEN + "&view=grid")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/?view=grid"
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    assert TOKEN not in cookie
    assert browser.get("/").status_code == 200
    again = browser.get("/?token=" + TOKEN)
    assert (again.status_code, again.headers["Location"]) == (303, "/")


def test_the_way_back_never_leads_to_another_server():
    browser = client(plain(token=TOKEN))
    answer = browser.get("http://127.0.0.1:8600//evil.example/?token=" + TOKEN)
    assert answer.headers["Location"] == "/evil.example/"


def test_a_bearer_token_opens_without_a_cookie():
    browser = client(plain(token=TOKEN))
    answer = browser.get("/api/state", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200 and "Set-Cookie" not in answer.headers
    wrong = browser.get("/api/state", headers={"Authorization": f"Bearer {TOKEN}x"})
    assert wrong.status_code == 401


def test_a_cookie_made_without_the_key_or_for_another_token_opens_nothing():
    policy = plain(token=TOKEN)
    for other in (AccessPolicy(key=bytes(32), token=TOKEN), plain(token="another-token")):
        browser = client(policy, cookies={policy.cookie: other.pass_code})
        assert browser.get("/").status_code == 401
    assert client(policy, cookies={policy.cookie: policy.pass_code}).get("/").status_code == 200


def test_wrong_tokens_delay_a_short_right_one_but_do_not_lock_it_out():
    browser = client(plain(token=TOKEN, wrong_tokens=3, token_seconds=0.3))
    codes = [browser.get(f"/?token=wrong-{number}").status_code for number in range(3)]
    start = time.monotonic()
    codes.append(browser.get("/?token=wrong-4").status_code)
    assert codes == [401] * 4
    answer = browser.get("/?token=" + TOKEN, follow_redirects=False)  # also delayed
    assert time.monotonic() - start >= 0.6
    assert answer.status_code == 303


def test_only_a_few_tokens_wait_at_the_same_time():
    browser = client(plain(token=TOKEN, wrong_tokens=1, token_seconds=0.5))
    browser.get("/?token=wrong")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda n: browser.get(f"/?token=wrong-{n}"), range(10)))
    codes = Counter(answer.status_code for answer in answers)
    assert codes[429] >= 1 and codes[401] >= MOST_DELAYED
    late = next(answer for answer in answers if answer.status_code == 429)
    assert late.headers["Retry-After"] == "1" and "too many wrong" in late.json()["error"]


def test_a_long_right_token_does_not_wait():
    token = "5d0c8a1e77b94f20a6c3e19b"
    browser = client(plain(token=token, wrong_tokens=1, token_seconds=1e6))
    assert browser.get("/?token=wrong").status_code == 401
    assert browser.get("/?token=" + token, follow_redirects=False).status_code == 303


def test_a_change_needs_the_code_of_this_server():
    policy = plain()
    browser = client(policy)
    for headers in ({}, {"X-Labelwise-Csrf": "0" * 64}, {"X-Labelwise-Csrf": "é".encode()}):
        answer = browser.post("/api/labels", headers=headers)
        assert answer.status_code == 403
        assert "X-Labelwise-Csrf" in answer.json()["error"]
    assert browser.post("/api/labels", headers=csrf(policy)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:8600.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_a_change_from_another_origin_is_refused_even_with_the_code(headers):
    policy = plain()
    answer = client(policy).post("/api/labels", headers={**csrf(policy), **headers})
    assert answer.status_code == 403
    assert "comes from" in answer.json()["error"]


def test_a_change_from_the_page_itself_is_allowed():
    policy = plain()
    headers = {"Origin": "http://127.0.0.1:8600", "Sec-Fetch-Site": "same-origin", **csrf(policy)}
    assert client(policy).post("/api/labels", headers=headers).status_code == 200


def test_other_sites_may_link_to_the_page_but_not_read_the_api():
    browser = client(plain())
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert browser.get("/", headers=cross).status_code == 200
    assert browser.get("/api/items/1/image", headers=cross).status_code == 403
    assert browser.get("/api/export", headers={"Sec-Fetch-Site": "none"}).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "PURGE"])
def test_every_method_but_reading_is_a_change(method):
    assert client(plain()).request(method, "/elsewhere").status_code == 403


def test_a_body_over_the_limit_is_refused_with_and_without_its_length():
    policy = plain(body_bytes=1000)
    browser = client(policy)
    fits = browser.post("/api/labels", content=b"x" * 1000, headers=csrf(policy))
    assert fits.json()["body"] == "x" * 1000
    promised = browser.post("/api/labels", content=b"x" * 1001, headers=csrf(policy))
    chunks = browser.post(
        "/api/labels", content=(b"x" * 100 for _ in range(11)), headers=csrf(policy)
    )
    assert "content-length" not in chunks.request.headers
    for answer in (promised, chunks):
        assert answer.status_code == 413
        assert "1,000 bytes" in answer.json()["error"]


def test_every_answer_forbids_scripts_of_others_framing_and_guessing_of_types():
    browser = client(plain(token=TOKEN))
    for answer in (browser.get("/"), browser.get("/?token=" + TOKEN), browser.get("/")):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy or "script-src" not in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_the_key_is_kept_for_the_owner_alone_and_stays_the_same(tmp_path):
    first = read_server_key(tmp_path)
    assert len(first) == 32 and read_server_key(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "web.key").stat().st_mode) == 0o600
    (tmp_path / "other").mkdir()
    assert read_server_key(tmp_path / "other") != first
    assert make_cookie_name(tmp_path) != make_cookie_name(tmp_path / "other")


def test_a_damaged_key_is_an_error(tmp_path):
    (tmp_path / "web.key").write_bytes(b"short")
    with pytest.raises(BadInput, match="does not hold 32 bytes"):
        read_server_key(tmp_path)


def test_secrets_are_not_shown():
    shown = repr(plain(token=TOKEN))
    assert TOKEN not in shown and repr(KEY) not in shown


def test_websockets_are_closed():
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client(plain()).websocket_connect("/api/state"):
        pass


def test_errors_are_json():
    answer = client(plain()).post("/api/labels")
    assert answer.headers["Content-Type"] == "application/json"
    assert list(json.loads(answer.text)) == ["error"]


def test_half_a_body_does_not_pass_for_a_whole_one():
    reached, sent = [], []
    policy = plain()
    coming = [
        {"type": "http.request", "body": b"{}", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def application(scope, receive, send):
        reached.append(await receive())

    async def receive():
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8600"), (b"x-labelwise-csrf", policy.csrf_code.encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/train", "query_string": b""}
    loops.run(RequestGuard(application, policy)({**scope, "headers": headers}, receive, send))
    assert reached == []
    assert sent[0]["status"] == 400
