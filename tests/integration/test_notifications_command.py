"""`fleet notifications`: what was sent out, and beginning again."""

from typing import Any

import pytest

from infra.settings import get_settings
from producers import Fleet
from producers.doctor import notifications as checks
from tests.harness import Database
from tests.integration import test_cli
from tests.integration.mailbox import INPUT, ask

cli = test_cli.cli
Cli = test_cli.Cli
THREAD = "refund:A"


@pytest.fixture
def sent(fleet: Fleet, database: Database) -> None:
    """One was sent, one receiver is gone, one question was answered before."""
    fleet.submit("refund", "A", INPUT)
    for number, status in enumerate(("sent", "gone", "waiting")):
        ask(database, THREAD, f"q{number}", status="answered" if status == "waiting" else "open")
        database.fetch(
            "INSERT INTO fleet.notifications (notification_id, thread_id, question_id, "
            "asked_epoch, channel, status, attempts, available_at, created_at, code) "
            "VALUES (%s, %s, %s, 1, 'webhook', %s, 1, fleet.now(), fleet.now(), 200)",
            f"msg_{number}",
            THREAD,
            f"q{number}",
            status,
        )


def found(cli: Any, *options: str) -> dict[str, str]:
    rows = cli("notifications", "--json", *options).json()["notifications"]
    return {row["notification_id"]: row["status"] for row in rows}


@pytest.mark.usefixtures("sent")
def test_notifications_lists_what_was_sent_and_what_was_not(cli: Cli) -> None:
    """A table for people, JSON for machines; one whose question was answered is dropped."""
    assert found(cli) == {"msg_0": "sent", "msg_1": "gone", "msg_2": "dropped"}
    assert found(cli, "--status", "gone") == {"msg_1": "gone"}
    assert found(cli, "--status", "waiting") == {}
    assert found(cli, "--channel", "chat") == {}
    lines = cli("notifications").out.splitlines()
    assert lines[0].startswith("thread_id\tchannel\tstatus") and len(lines) == 4


@pytest.mark.usefixtures("sent")
def test_notifications_of_another_tenant_are_not_listed(cli: Cli) -> None:
    """As with threads."""
    assert found(cli, "--tenant", "acme") == {}


@pytest.mark.usefixtures("sent")
def test_notifications_again_takes_up_what_a_receiver_wanted_no_more(cli: Cli) -> None:
    """Once; a status that is none is a usage error."""
    again = ("notifications", "--again", "webhook", "--json")
    assert cli(*again).json() == {"channel": "webhook", "sent_again": 1}
    assert cli(*again).json() == {"channel": "webhook", "sent_again": 0}
    assert found(cli)["msg_1"] == "waiting"
    assert cli("notifications", "--status", "lost").code == 2


KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def said(**settings: Any) -> list[tuple[str, str]]:
    """(level, sentence) of each finding about notifications."""
    given = get_settings().model_copy(update=settings)
    return [(finding.level, finding.said) for finding in checks.look(given, True)]


@pytest.mark.usefixtures("sent", "settings_env")
def test_doctor_says_who_would_not_be_told() -> None:
    """No address, one that is refused, one that can't be found; the address is not shown."""
    assert said()[0][1].startswith("No channel is set")
    found = said(webhook_url="http://10.0.0.1/s3cret", webhook_secret=KEY)
    assert [level for level, _ in found] == ["warning", "warning", "warning"]
    assert "FLEET_NOTIFY_PRIVATE" in found[0][1] and "FLEET_PUBLIC_URL" not in found[0][1]
    assert "without a link" in found[1][1] and "1 since its receiver" in found[2][1]
    assert "s3cret" not in str(found)
    nowhere = said(chat_webhook_url="http://no.such.host.invalid", public_url="https://x")
    assert "can't be found" in nowhere[0][1]


@pytest.mark.usefixtures("settings_env")
def test_doctor_passes_where_somebody_would_be_told(database: Database) -> None:
    """Every address is one that would be called."""
    given = {"webhook_url": "http://127.0.0.1:9/x", "webhook_secret": KEY, "notify_private": True}
    assert [level for level, _ in said(public_url="https://x", **given)] == ["ok"]
