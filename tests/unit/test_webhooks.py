"""Webhooks: how they are signed, and whom we call at all."""

import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook, WebhookVerificationError

from infra import webhooks
from infra.webhooks import NotDelivered, Reply, TargetRefused, is_public, post, signed
from tests.receiver import receiver

KEY = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEXT = "whsec_" + "bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0"


def test_a_receiver_verifies_what_we_sign() -> None:
    """With the library of Standard Webhooks; a changed body is none of ours."""
    headers = signed(KEY, "msg_1", b'{"a":1}', datetime.now(UTC))
    assert Webhook(KEY).verify(b'{"a":1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(KEY).verify(b'{"a":2}', headers)


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    """The database tells times in its own."""
    at = datetime.now(timezone(timedelta(hours=8)))
    assert Webhook(KEY).verify(b"{}", signed(KEY, "msg_1", b"{}", at)) == {}


def test_two_keys_sign_while_one_replaces_the_other() -> None:
    """A receiver that has either accepts it."""
    headers = signed(f"{NEXT} {KEY}", "msg_1", b"{}", datetime.now(UTC))
    for key in KEY, NEXT:
        assert Webhook(key).verify(b"{}", headers) == {}


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::1", False),
        ("2002:a9fe:a9fe::1", False),
        ("2002:5db8:d822::1", True),
        ("fec0::1", False),
        ("feff::1", False),
        ("64:ff9b:1::1", False),
        ("64:ff9b:1::5db8:d822", False),
        ("::127.0.0.1", False),
        ("::10.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("::ffff:0:169.254.169.254", False),
        ("2001:0:4136:e378:8000:63bf:f5ff:fffe", False),
        ("2001:0:7f00:1:8000:63bf:3fff:fdd2", False),
        ("2606:2800:220:1:0:5efe:10.0.0.1", False),
        ("2606:2800:220:1:200:5efe:127.0.0.1", False),
        ("2606:2800:220:1:0:5efe:93.184.216.34", True),
        ("fe80::1%eth0", False),
        ("100::1", False),
        ("2001:db8::1", False),
        ("ff0e::1", False),
    ],
)
def test_private_addresses_are_known_in_all_their_forms(address: str, public: bool) -> None:
    """Also as an IPv6 address that stands for an IPv4 one."""
    assert is_public(ip_address(address)) is public


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0"]
)
def test_a_private_target_is_refused_before_anything_is_sent(host: str) -> None:
    """However it is written; it says which setting allows it."""
    with receiver() as found:
        url = found.url.replace("127.0.0.1", host)
        with pytest.raises(TargetRefused, match="FLEET_NOTIFY_PRIVATE"):
            post(url, b"{}", {})
    assert found.came == []


def test_a_name_that_resolves_to_both_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One private address among public ones is enough."""
    both = [(2, 1, 6, "", ("93.184.216.34", 80)), (2, 1, 6, "", ("10.0.0.1", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(TargetRefused):
        post("http://example.com/", b"", {})


def test_the_connection_goes_to_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that changes between look and call leads nowhere else; the Host is the name."""
    looked: list[str] = []
    real = socket.getaddrinfo

    def once(host: Any, *args: Any, **kwargs: Any) -> Any:
        looked.append(host)
        name = "127.0.0.1" if host == "hooks.example" else host
        return real(name, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    with receiver() as found:
        url = found.url.replace("127.0.0.1", "hooks.example")
        assert post(url, b"{}", {"x-a": "b"}, private=True) == Reply(200)
    assert looked.count("hooks.example") == 1
    headers, body = found.came[0]
    assert headers["host"].startswith("hooks.example:") and headers["x-a"] == "b"
    assert body == b"{}"


def test_a_login_in_the_address_is_sent() -> None:
    """As the header that it stands for."""
    with receiver() as found:
        url = found.url.replace("http://", "http://ann:s%40crt@")
        assert post(url, b"{}", {}, private=True).status == 200
    assert found.came[0][0]["authorization"] == "Basic YW5uOnNAY3J0"


def test_a_redirect_is_not_followed() -> None:
    """It is an answer like any other."""
    with receiver() as found, receiver() as elsewhere:
        found.answers = [(302, {"location": elsewhere.url})]
        assert post(found.url, b"{}", {}, private=True).status == 302
    assert elsewhere.came == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be called in the target's place, unlooked at."""
    with receiver() as found, receiver() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert post(found.url, b"{}", {}, private=True).status == 200
    assert proxy.came == []


@pytest.mark.parametrize(
    ("said", "pause"), [("7", 7.0), ("-1", None), ("nan", None), ("soon", None), ("inf", None)]
)
def test_a_receiver_may_ask_for_a_pause(said: str, pause: float | None) -> None:
    """Retry-After in seconds; nonsense is none."""
    with receiver() as found:
        found.answers = [(503, {"retry-after": said})]
        assert post(found.url, b"{}", {}, private=True) == Reply(503, pause)


def test_a_receiver_that_never_comes_to_an_end_is_left() -> None:
    """Bytes now and then do not make up for an answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def drip() -> None:
            conn, _ = server.accept()
            with conn:
                while not done.wait(0.05):
                    try:
                        conn.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/secret-path"
        with pytest.raises(NotDelivered, match=r"no answer within 0\.4 s") as caught:
            post(url, b"{}", {}, private=True, timeout=0.4)
        done.set()
        thread.join(5)
    assert "secret-path" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/s3cret", "https://127.0.0.1:1/s3cret"])
def test_nobody_there_is_not_delivered(url: str) -> None:
    """The text names the host, not the address."""
    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1 could not be reached") as caught:
        post(url, b"{}", {}, private=True)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/", "http://x:99999/"])
def test_an_address_that_is_none_is_not_delivered(url: str) -> None:
    """It never gets further than that."""
    with pytest.raises(NotDelivered):
        post(url, b"{}", {}, private=True)


def _certificate(folder: Path) -> Path:
    """Of hooks.example, signed by itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.example")]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(key.private_bytes(*plain) + made.public_bytes(Encoding.PEM))
    return file


@pytest.mark.parametrize("host", ["hooks.example", "other.example"])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trusted: bool, host: str
) -> None:
    """By the name of the address, although the connection goes to a number."""
    file = _certificate(tmp_path)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(file)
    ours = ssl.create_default_context(cafile=str(file) if trusted else None)
    monkeypatch.setattr(webhooks, "_context", lambda: ours)
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, *args, **more: real("127.0.0.1", *args, **more)
    )
    with receiver(theirs) as found:
        url = found.url.replace("http:", "https:").replace("127.0.0.1", host)
        if trusted and host == "hooks.example":
            assert post(url, b"{}", {}, private=True).status == 200
            return
        with pytest.raises(NotDelivered):
            post(url, b"{}", {}, private=True)
    assert found.came == []


def test_a_forked_child_holds_no_call_of_its_parent() -> None:
    """The receiver sees the end of it when the parent ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        caller = threading.Thread(target=lambda: _quiet(url), daemon=True)
        caller.start()
        conn, _ = server.accept()
        with conn:
            while not conn.recv(4096).endswith(b"{}"):
                pass
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            os.close(reading)
            try:
                conn.settimeout(5)
                caller.join(5)
                assert conn.recv(1) == b""
            finally:
                os.close(writing)
                os.waitpid(child, 0)


def _quiet(url: str) -> None:
    with pytest.raises(NotDelivered):
        post(url, b"{}", {}, private=True, timeout=1)
