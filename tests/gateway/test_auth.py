"""Who may come in, and what each may: keys, tokens, roles, tenants, limits."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from producers import Fleet
from producers.gateway import keys
from producers.gateway.auth import Role
from tests.gateway.serving import AUDIENCE, ISSUER, SECRET, Gateway, problem, token
from tests.harness import Database
from tests.integration.mailbox import INPUT, ask

A1 = "/threads/refund/A1"
#: Of each door of REST: method, path, body.
DOORS = [
    ("GET", A1, None),
    ("GET", f"{A1}/history", None),
    ("GET", f"{A1}/questions", None),
    ("POST", f"{A1}/questions/q1/answer", {"value": "approved"}),
    ("POST", f"{A1}/cancel", None),
    ("POST", f"{A1}/messages", {"input": INPUT, "kind": "input"}),
]


def asks(client: httpx.Client, method: str, path: str, body: Any) -> httpx.Response:
    return client.request(method, path, json=body) if body else client.request(method, path)


@pytest.fixture
def asked(fleet: Fleet, database: Database) -> str:
    """A thread of tenant acme with an open question, and none of the others."""
    with Fleet(database.url, tenant="acme") as acme:
        thread = acme.submit("refund", "A1", INPUT).thread_id
    ask(database, thread, "q1")
    return thread


@pytest.mark.parametrize(
    "given", [None, "nonsense", "fleet_0123456789ab_" + "x" * 43, "a.b.c", "é"]
)
def test_nobody_else_comes_in(guarded: Gateway, given: str | None) -> None:
    """401 with a challenge, on every door, before a body is looked at; the probes are open."""
    authorization = {} if given is None else {"Authorization": f"Bearer {given}".encode()}
    with httpx.Client(base_url=guarded.url, headers=authorization) as client:
        for method, path, body in DOORS:
            answer = asks(client, method, path, body)
            problem(answer, 401, "unauthorized")
            problem(client.request(method, path, content=b"{"), 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in "/agent/run", "/agent/resume", "/agent/cancel", "/sessions":
            problem(client.post(path, content=b"{"), 401, "unauthorized")
        problem(client.get("/threads"), 401, "unauthorized")
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


def test_a_key_is_kept_as_a_hash(guarded: Gateway, database: Database) -> None:
    """Whoever reads the table can't come in with what is there."""
    key = guarded.key("viewer")
    secret = key.rpartition("_")[2]
    row = database.value("SELECT to_jsonb(k)::text FROM fleet.api_keys k")
    assert secret not in row and key not in row
    with guarded.client(key) as client:
        assert client.get("/threads").status_code == 200
    with guarded.client(key[:-1] + ("A" if key[-1] != "A" else "B")) as client:
        problem(client.get("/threads"), 401, "unauthorized")


def test_a_revoked_key_opens_nothing_at_once(guarded: Gateway, database: Database) -> None:
    """Nor does one whose time has come."""
    key = guarded.key("viewer")
    with guarded.client(key) as client:
        assert client.get("/threads").status_code == 200
        keys.revoke(guarded.state.database, key)
        problem(client.get("/threads"), 401, "unauthorized")
    short, _ = keys.create(guarded.state.database, "short", [Role.viewer], days=1)
    with guarded.client(short) as client:
        assert client.get("/threads").status_code == 200
        database.fetch("SELECT fleet.move_clock('25 hours')")
        problem(client.get("/threads"), 401, "unauthorized")


@pytest.mark.parametrize(
    "claims",
    [
        {"expires_in": -60},
        {"iss": "https://somebody.test"},
        {"aud": "others"},
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
        {"tenant": "a/b"},
        {"tenant": 7},
        {"exp": "soon"},
        {"exp": 1e300},
        {"exp": 1e18},
        {"iat": -1e18},
        {"nbf": time.time() + 3600},
        {"roles": 7},
    ],
)
def test_a_token_that_is_not_valid_is_none(guarded: Gateway, claims: dict[str, Any]) -> None:
    """Expired, of another issuer, for others, without a subject, or of a form that is none."""
    made = token(**{"roles": ["operator"], **claims})
    with guarded.client(made) as client:
        problem(client.get("/threads"), 401, "unauthorized")


def test_a_token_without_a_claim_that_is_needed_is_none(guarded: Gateway) -> None:
    """One that never expires would be a key that nobody can revoke."""
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u", "exp": time.time() + 60}
    for missing in whole:
        claims = {name: value for name, value in whole.items() if name != missing}
        made = jwt.encode(claims | {"roles": ["operator"]}, SECRET, algorithm="HS256")
        with guarded.client(made) as client:
            problem(client.get("/threads"), 401, "unauthorized")


def test_a_token_is_checked_with_its_key(guarded: Gateway) -> None:
    """Neither without a signature nor with somebody else's secret."""
    claims = jwt.decode(token(roles=["operator"]), options={"verify_signature": False})
    forged = [
        jwt.encode(claims, "another secret of thirty-two bytes or so", algorithm="HS256"),
        jwt.encode(claims, None, algorithm="none"),
        token(roles=["operator"]).rpartition(".")[0] + ".",
    ]
    for made in forged:
        with guarded.client(made) as client:
            problem(client.get("/threads"), 401, "unauthorized")
    with guarded.client(token(roles="viewer other")) as client:
        assert client.get("/threads").status_code == 200


class Issuer:
    """Serves a JWKS, which the test changes; counts how often it is asked."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        self.away = False
        self.broken = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(503 if outer.away else 200)
                self.end_headers()
                answer = outer.broken or json.dumps({"keys": outer.keys})
                self.wfile.write(answer.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/jwks"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, kid: str, algorithm: str = "RS256") -> Any:
        """A new key, published; gives the private one."""
        if algorithm == "RS256":
            private: Any = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
        else:
            private = ec.generate_private_key(ec.SECP256R1())
            public = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        self.keys.append({**public, "kid": kid, "alg": algorithm, "use": "sig"})
        return private

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


@pytest.fixture
def by_jwks(issuer: Issuer, fleet_settings: dict[str, Any]) -> Iterator[Gateway]:
    """A gateway that takes the issuer's tokens."""
    jwks = {"jwt_jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with Gateway(**fleet_settings, **jwks) as gateway:
        yield gateway


def signed(private: Any, kid: str, algorithm: str = "RS256", **claims: Any) -> str:
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u", "exp": time.time() + 600}
    made |= {"roles": ["viewer"]} | claims
    return jwt.encode(made, private, algorithm=algorithm, headers={"kid": kid})


def status(gateway: Gateway, made: str) -> int:
    with gateway.client(made) as client:
        return client.get("/threads").status_code


def test_an_issuers_keys_are_looked_up_once_and_again_for_a_new_one(
    by_jwks: Gateway, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RSA and EC; a key that was added later is found; junk does not make us ask each time."""
    first = issuer.add("one")
    second = issuer.add("two", "ES256")
    assert status(by_jwks, signed(first, "one")) == 200
    assert status(by_jwks, signed(second, "two", "ES256")) == 200
    assert issuer.asked == 1
    assert [status(by_jwks, signed(first, "junk")) for _ in range(5)] == [401] * 5
    assert issuer.asked <= 2
    third = issuer.add("three")
    by_jwks.state.tokens._keys.cooldown_duration = 0
    assert status(by_jwks, signed(third, "three")) == 200


def test_a_public_key_is_no_secret(by_jwks: Gateway, issuer: Issuer) -> None:
    """HS256 over the key that everybody can read, or another algorithm than the key's."""
    private = issuer.add("one")
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = {"alg": "HS256", "typ": "JWT", "kid": "one"}
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u", "exp": time.time() + 600}

    def part(value: Any) -> bytes:
        return jwt.utils.base64url_encode(json.dumps(value).encode())

    import hashlib
    import hmac

    body = part(head) + b"." + part(claims | {"roles": ["operator"]})
    forged = body + b"." + jwt.utils.base64url_encode(hmac.digest(pem, body, hashlib.sha256))
    assert status(by_jwks, forged.decode()) == 401
    assert status(by_jwks, signed(private, "one", "RS512")) == 401
    assert status(by_jwks, signed(rsa.generate_private_key(65537, 2048), "one")) == 401


def test_an_issuer_that_is_away_is_said_so(by_jwks: Gateway, issuer: Issuer) -> None:
    """503 and when to come back, where no key is known; known ones go on."""
    private = issuer.add("one")
    issuer.away = True
    with by_jwks.client(signed(private, "one")) as client:
        answer = client.get("/threads")
        problem(answer, 503, "keys_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        issuer.away = False
        assert client.get("/threads").status_code == 200
        issuer.away = True
        assert client.get("/threads").status_code == 200


def test_an_issuer_that_answers_in_other_words_is_away(by_jwks: Gateway, issuer: Issuer) -> None:
    """A page in place of its keys, as proxies send one, makes no token bad."""
    private = issuer.add("one")
    issuer.broken = "<html>Back soon.</html>"
    with by_jwks.client(signed(private, "one")) as client:
        problem(client.get("/threads"), 503, "keys_unavailable")
        issuer.broken = ""
        assert client.get("/threads").status_code == 200


# Tenants and roles


@pytest.mark.parametrize("who", ["key", "token", "user"])
@pytest.mark.parametrize("tenant", ["", "other"])
def test_another_tenant_meets_what_is_not_there(
    guarded: Gateway, asked: str, database: Database, who: str, tenant: str
) -> None:
    """Each door answers for acme's thread exactly as for one that nobody has."""
    made = {
        "key": lambda: guarded.key("operator", tenant=tenant),
        "token": lambda: token("mallory", tenant=tenant, roles=["operator"]),
        "user": lambda: token("mallory", tenant=tenant),
    }[who]()
    before = database.fetch("SELECT * FROM fleet.threads")
    with guarded.client(made) as client:
        for method, path, body in DOORS:
            there = asks(client, method, path, body)
            nowhere = asks(client, method, path.replace("A1", "A2"), body)
            problem(there, 404, "unknown_thread")
            assert there.text == nowhere.text.replace("A2", "A1")
            assert {*there.headers} == {*nowhere.headers}
        if who != "user":
            assert client.get("/threads").json() == {"threads": []}
    assert database.fetch("SELECT * FROM fleet.threads") == before
    assert database.value("SELECT status FROM fleet.questions") == "open"


@pytest.mark.parametrize("path", ["/threads/acme%2Frefund/A1", "/threads/acme/refund:A1"])
def test_a_tenant_can_not_be_named_in_a_path(guarded: Gateway, asked: str, path: str) -> None:
    """It is the caller's own, always."""
    with guarded.client(guarded.key("operator")) as client:
        assert client.get(path).status_code in (400, 404)


def test_a_user_without_a_role_has_only_what_is_theirs(guarded: Gateway, asked: str) -> None:
    """Of the same tenant too: a thread that is somebody else's does not exist."""
    with guarded.client(token("bob", tenant="acme")) as client:
        for method, path, body in DOORS:
            problem(asks(client, method, path, body), 404, "unknown_thread")
        problem(client.get("/threads"), 403, "forbidden")
        start = {"Idempotency-Key": "m1"}
        new = client.post("/threads/refund/A7/messages", json={"input": INPUT}, headers=start)
        problem(new, 404, "unknown_thread")


def test_a_users_own_thread_is_theirs_but_for_force(guarded: Gateway) -> None:
    """They start, read and cancel it; what may be done twice outside takes an operator."""
    with guarded.client(token("bob")) as client:
        opened = client.post("/sessions", json={"graph": "refund"}).json()
        path = f"/threads/refund/{opened['thread_id'].partition(':')[2]}"
        body, headers = {"input": INPUT}, {"Idempotency-Key": "m1"}
        start = client.post(f"{path}/messages", json=body, headers=headers)
        assert start.status_code == 202, start.text
        again = {**body, "on_existing": "restart", "force": True}
        forced = client.post(f"{path}/messages", json=again, headers={"Idempotency-Key": "m2"})
        problem(forced, 403, "forbidden")
        with guarded.client(token("eve")) as other:
            problem(other.get(path), 404, "unknown_thread")
        assert client.get(path).json()["status"] == "idle"
        assert client.post(f"{path}/cancel").status_code == 200


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("viewer", {"read"}),
        ("producer", {"read", "send", "cancel"}),
        ("approver", {"read", "answer"}),
        ("operator", {"read", "send", "cancel", "answer", "force"}),
    ],
)
def test_a_role_may_what_it_is_for(guarded: Gateway, asked: str, role: str, allowed: Any) -> None:
    """403 for the rest, which says nothing of any thread: it is the same for one that is not."""
    with guarded.client(guarded.key(role, tenant="acme")) as client:
        found = {}
        for key in ("A9", "A1"):
            start = {"headers": {"Idempotency-Key": f"m-{key}"}}
            path = f"/threads/refund/{key}"
            restart = {"input": INPUT, "on_existing": "restart", "force": True}
            found[key] = {
                "read": client.get(path),
                "answer": client.post(f"{path}/questions/q1/answer", json={"value": "approved"}),
                "cancel": client.post(f"{path}/cancel"),
                "send": client.post(f"{path}/messages", json={"input": INPUT}, **start),
                "force": client.post(f"{path}/messages", json=restart, **start),
            }
        for key, answers in found.items():
            refused = {name for name, answer in answers.items() if answer.status_code == 403}
            assert refused == {"read", "answer", "cancel", "send", "force"} - allowed, key
            for name in refused:
                problem(answers[name], 403, "forbidden")
                assert answers[name].text == found["A9"][name].text


def test_who_answered_is_the_caller(guarded: Gateway, asked: str, database: Database) -> None:
    """A user can't answer in somebody else's name; a service says for whom it asks."""
    body = {"value": "approved", "answered_by": "ann"}
    with guarded.client(token("bob", tenant="acme", roles=["approver"])) as client:
        assert client.post(f"{A1}/questions/q1/answer", json=body).status_code == 202
    assert database.value("SELECT answered_by FROM fleet.questions") == "bob"


# Limits


def test_a_caller_that_comes_too_often_is_told_when_to_come_back(
    fleet_settings: dict[str, Any],
) -> None:
    """429 with Retry-After; others are not held up by it."""
    jwt_of = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with Gateway(**fleet_settings, **jwt_of, gateway_rate=5) as gateway:
        with gateway.client(token("eve", roles=["viewer"])) as client:
            answers = [client.get("/threads") for _ in range(7)]
            assert [a.status_code for a in answers].count(429) >= 1
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 120
            problem(answers[-1], 429, "too_many_requests")
        with gateway.client(token("bob", roles=["viewer"])) as client:
            assert client.get("/threads").status_code == 200
