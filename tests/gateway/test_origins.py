"""Pages that the settings let in, and their neighbours, which are not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from websockets.exceptions import InvalidStatus

from infra.settings import Settings
from tests.gateway.pages import Page
from tests.gateway.serving import JWT, Gateway, problem, token
from tests.harness import Database, registered_graphs

PAGES, PUBLIC = "https://pages.example", "https://fleet.example"
ASKED = "authorization, content-type, idempotency-key, last-event-id"


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return registered_graphs(tmp_path, database, {"talk": "chatter.py:graph"})


@pytest.fixture
def guarded(fleet_settings: dict[str, Any], graphs_file: Path) -> Iterator[Gateway]:
    """Whose settings name pages, as people write them."""
    named = {
        "allowed_origins": f"{PAGES}, http://localhost:5173/,HTTPS://Other.Example:443",
        "public_url": f"{PUBLIC}:443/agents/",
    }
    with Gateway(**fleet_settings, **JWT, **named) as gateway:
        yield gateway


NAMED = [PAGES, "http://localhost:5173", "https://other.example", PUBLIC]
NEIGHBOURS = [
    "https://pages.example:8443",
    "http://pages.example",
    "https://sub.pages.example",
    "https://pages.example.evil.example",
    "https://notpages.example",
    "https://example",
    "http://localhost:5174",
    "http://localhost",
    "http://fleet.example",
    "https://fleet.example:8443",
    "https://chat.fleet.example",
    "null",
    "*",
]


@pytest.mark.parametrize("origin", NAMED)
def test_a_page_that_the_settings_name_is_let_in(guarded: Gateway, origin: str) -> None:
    """To the WebSocket, to what changes something, and to what it reads; its browser is told."""
    mine = token("u_1")
    with Page(guarded, origin=origin, token=mine) as page:
        assert page.until("welcome")["resumed"] is False
    with guarded.client(mine, Origin=origin) as client:
        made = client.post("/sessions", json={"graph": "talk"})
        assert made.status_code == 201, made.text
        read = client.get(f"/sessions/{made.json()['session_id']}")
        assert read.status_code == 200
        for answer in made, read:
            assert answer.headers["access-control-allow-origin"] == origin
            assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize("origin", NAMED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_its_browser_may_ask_before(guarded: Gateway, origin: str, method: str) -> None:
    """With the headers that clients of the doors send."""
    asks = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ASKED}
    with guarded.client(Origin=origin) as client:
        answer = client.options("/agent/run", headers=asks)
    assert answer.status_code == 200, answer.text
    assert answer.headers["access-control-allow-origin"] == origin
    assert method in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert not set(ASKED.split(", ")) - set(allowed.split(", "))
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", NEIGHBOURS)
def test_its_neighbours_are_not(guarded: Gateway, database: Database, origin: str) -> None:
    """Another port, scheme or host, or none: 403, and nothing that they may read."""
    mine = token("u_1")
    with pytest.raises(InvalidStatus) as refused:
        Page(guarded, origin=origin, token=mine)
    assert refused.value.response.status_code == 403
    with guarded.client(mine, Origin=origin) as client:
        made = client.post("/sessions", json={"graph": "talk"})
        problem(made, 403, "foreign_origin")
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": ASKED}
        preflight = client.options("/sessions", headers=asks)
        assert preflight.status_code == 400
        for answer in made, preflight, client.get("/sessions"):
            assert "access-control-allow-origin" not in answer.headers
    assert database.value("SELECT count(*) FROM fleet.sessions") == 0


@pytest.mark.parametrize(
    "named",
    [
        "*",
        "pages.example",
        f"{PAGES}, null",
        "https://*.example.com",
        "https://",
        "://pages.example",
        f"{PAGES} http://localhost:5173",
        f"{PAGES};http://localhost:5173",
        "ftp://pages.example",
        "https://pages.example:https",
        "https://bücher.example",
    ],
)
def test_what_names_no_page_is_refused_at_the_start(named: str) -> None:
    """Rather than letting nobody in, or everybody read."""
    with pytest.raises(ValidationError, match="names no page: write each as https://"):
        Settings(allowed_origins=named)


@pytest.mark.parametrize(
    "named",
    ["", f"{PAGES},", "http://[::1]:5173", "https://xn--bcher-kva.example", "http://10.0.0.1"],
)
def test_what_names_pages_is_taken(named: str) -> None:
    """IPv6 addresses and names as browsers write them, too."""
    assert Settings(allowed_origins=named).allowed_origins == named
