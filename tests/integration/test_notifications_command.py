"""`fleet notifications`: what was sent out, and beginning again."""

from typing import Any

import pytest

from producers import Fleet
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
