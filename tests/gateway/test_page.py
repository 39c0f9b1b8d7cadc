"""The chat page's files, as a browser gets them."""

import re

import httpx
import pytest

from producers.gateway import page
from tests.gateway.serving import problem

PARTS = sorted(path.name for path in page._FOLDER.iterdir())


@pytest.mark.parametrize("path", ["/chat", *(f"/chat/{name}" for name in PARTS)])
def test_files_come_with_a_strict_policy(client: httpx.Client, path: str) -> None:
    """Nothing from elsewhere, nothing guessed, and no address told to others."""
    got = client.get(path)
    assert got.status_code == 200
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy
    assert got.headers.get_list("x-content-type-options")[0] == "nosniff"
    assert got.headers.get_list("referrer-policy")[0] == "no-referrer"
    # SVG names its language by an address.
    assert not re.search(r"https?://(?!www\.w3\.org)", got.text)


def test_what_has_not_changed_is_not_sent_again(client: httpx.Client) -> None:
    """A browser asks each time, so that it never has half of another version."""
    first = client.get("/chat/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/chat/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "page.py", "..%2Fpage.py", "%2e%2e%2fauth.py"])
def test_other_files_are_not_served(client: httpx.Client, name: str) -> None:
    problem(client.get(f"/chat/{name}"), 404, "not_found")


def test_a_slash_too_many(client: httpx.Client) -> None:
    """Its addresses are relative to the page's."""
    got = client.get("/chat/?graph=refund")
    assert got.status_code == 307
    assert str(got.url.join(got.headers["location"])) == str(
        client.base_url.join("/chat?graph=refund")
    )
