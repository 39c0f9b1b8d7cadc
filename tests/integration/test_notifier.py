"""The notifier against real servers: who is told of a question, how often, and until when."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from infra.errors import SettingsError
from infra.settings import Settings, get_settings
from infra.webhooks import Reply
from producers import Fleet
from tests.harness import Database, clean_environment, eventually
from tests.integration.mailbox import APPROVE, INPUT, ask, settle
from tests.receiver import Receiver, receiver
from workers.channels import Card, ChatChannel, WebhookChannel, channels
from workers.notifier import WAITS, Notifier, begin, failed, outcome
from workers.pruner import Pruner

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
THREAD = "refund:A"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def chat() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


Make = Callable[..., Settings]


@pytest.fixture
def settings(settings_env: None, hook: Receiver) -> Make:
    def make(**more: Any) -> Settings:
        told = {
            "webhook_url": hook.url,
            "webhook_secret": KEY,
            "notify_private": True,
            "public_url": "https://fleet.example/",
            **more,
        }
        return get_settings().model_copy(update=told)

    return make


@pytest.fixture
def notifier(settings: Make) -> Iterator[Notifier]:
    """Of the webhook, leading; `look` is one look at what is to be planned and sent."""
    made = Notifier(settings(), WebhookChannel(settings()))
    assert made.lead()
    yield made
    made.drop()


def look(notifier: Notifier) -> int:
    notifier._planned = float("-inf")
    return notifier.tick()


def move(database: Database, seconds: float) -> None:
    database.fetch(f"SELECT fleet.move_clock('{seconds} s')")


def wait_for(fleet: Fleet, database: Database, question: str = "q1", **more: Any) -> None:
    """A thread that waits for the answer to a question."""
    fleet.submit("refund", "A", INPUT, message_id="m1")
    ask(database, THREAD, question, **more)


def connected(database: Database, gateway: str = "gw1") -> None:
    database.fetch(
        "INSERT INTO fleet.presence VALUES (%s, %s, fleet.now()) "
        "ON CONFLICT (thread_id, gateway) DO UPDATE SET seen_at = fleet.now()",
        THREAD,
        gateway,
    )


def statuses(fleet: Fleet) -> list[str]:
    return [row.status for row in fleet.notifications()]


# Who is told


def test_a_question_is_sent_once_when_nobody_was_there_for_a_while(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """Not before FLEET_NOTIFY_AFTER seconds, and never again."""
    wait_for(fleet, database)
    assert look(notifier) == 0
    move(database, 55)
    assert look(notifier) == 0 and statuses(fleet) == ["waiting"]
    move(database, 61)
    assert look(notifier) == 1
    move(database, 100_000)
    assert look(notifier) == 0
    assert len(hook.came) == 1 and statuses(fleet) == ["sent"]


def test_the_card_is_signed_and_says_what_is_asked(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """A Standard Webhook with question, thread, kind, payload, deadline and link."""
    wait_for(fleet, database, expires_in=3600)
    look(notifier)
    database.fetch("UPDATE fleet.notifications SET available_at = fleet.now()")
    look(notifier)
    headers, body = hook.came[0]
    event = Webhook(KEY).verify(body, headers)
    assert event["type"] == "question.unanswered"
    data = event["data"]
    assert (data["thread_id"], data["graph"], data["key"]) == (THREAD, "refund", "A")
    assert (data["question_id"], data["kind"], data["payload"]) == ("q1", "approve", APPROVE)
    left = datetime.fromisoformat(data["expires_at"]) - datetime.now(UTC)
    assert 3000 < left.total_seconds() < 3700
    assert data["link"].startswith("https://fleet.example/answer/")
    assert headers["content-type"] == "application/json"


def test_of_a_link_only_its_hash_is_kept(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """Its token is of 192 random bits, and nowhere in the database."""
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    look(notifier)
    token = json.loads(hook.came[0][1])["data"]["link"].rpartition("/")[2]
    assert len(token) == 32
    assert database.value("SELECT octet_length(token_hash) FROM fleet.answer_links") == 32
    for table in "notifications", "answer_links", "questions":
        assert token not in str(database.fetch(f"SELECT t::text FROM fleet.{table} t"))


def test_without_a_public_address_there_is_no_link(
    settings: Make, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """The card comes all the same."""
    notifier = Notifier(settings(public_url=None), WebhookChannel(settings()))
    assert notifier.lead()
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    assert look(notifier) == 1
    notifier.drop()
    assert json.loads(hook.came[0][1])["data"]["link"] is None
    assert database.value("SELECT count(*) FROM fleet.answer_links") == 0


def test_nobody_is_told_of_a_question_that_somebody_looks_at(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """The time begins when the last one has gone."""
    wait_for(fleet, database)
    for seconds in range(0, 200, 20):
        move(database, seconds)
        connected(database)
        look(notifier)
    assert statuses(fleet) == []
    move(database, 240)
    look(notifier)
    assert statuses(fleet) == ["waiting"]
    move(database, 290)
    assert look(notifier) == 0
    move(database, 301)
    assert look(notifier) == 1


def test_whoever_comes_in_time_stops_it(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """Also between the plan and the sending."""
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    connected(database)
    assert notifier.tick() == 0
    assert hook.came == [] and statuses(fleet) == []


def test_each_question_and_each_asking_is_told_of(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """Two at once are two; one asked again is another one."""
    wait_for(fleet, database)
    ask(database, THREAD, "q2")
    look(notifier)
    move(database, 61)
    assert look(notifier) == 2
    database.fetch("UPDATE fleet.questions SET asked_epoch = 7 WHERE question_id = 'q1'")
    look(notifier)
    move(database, 200)
    assert look(notifier) == 1
    assert len(set(hook.ids())) == 3


def test_each_channel_is_told_once(
    settings: Make, hook: Receiver, chat: Receiver, fleet: Fleet, database: Database
) -> None:
    """By notifiers of their own."""
    given = settings(chat_webhook_url=chat.url)
    telling = [Notifier(given, channel) for channel in channels(given)]
    assert [n.channel.name for n in telling] == ["webhook", "chat"]
    wait_for(fleet, database)
    for notifier in telling:
        assert notifier.lead()
        look(notifier)
    move(database, 61)
    assert [look(n) for n in telling] == [1, 1]
    assert [look(n) for n in telling] == [0, 0]
    for notifier in telling:
        notifier.drop()
    (_, body) = chat.came[0]
    text = json.loads(body)["text"]
    assert THREAD in text and "https://fleet.example/answer/" in text and "1500.00" in text


def test_two_notifiers_of_a_channel_do_not_tell_twice(
    settings: Make, notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """One leads; the other takes over when its session is gone."""
    other = Notifier(settings(), WebhookChannel(settings()))
    assert not other.lead()
    notifier.drop()
    assert eventually(other.lead)
    other.drop()


@pytest.mark.parametrize("after", ["answered", "expired", "superseded"])
def test_a_question_that_needs_no_answer_is_sent_no_more(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database, after: str
) -> None:
    """Before the first attempt, and between two."""
    hook.answers = [(500, {})]
    wait_for(fleet, database)
    ask(database, THREAD, "q2")
    look(notifier)
    move(database, 61)
    database.fetch("UPDATE fleet.questions SET status = %s WHERE question_id = 'q1'", after)
    look(notifier)
    database.fetch("UPDATE fleet.questions SET status = %s", after)
    move(database, 100_000)
    look(notifier)
    assert len(hook.came) == 1 and statuses(fleet) == ["dropped", "dropped"]


def test_a_channel_that_is_not_told_first_is_told_where_a_deadline_names_it(
    settings: Make, hook: Receiver, chat: Receiver, fleet: Fleet, database: Database
) -> None:
    """FLEET_NOTIFY_CHANNELS leaves it for that; it is told at once, connected or not."""
    given = settings(chat_webhook_url=chat.url, notify_channels="webhook")
    telling = Notifier(given, ChatChannel(given))
    assert telling.lead()
    wait_for(fleet, database, expires_in=600)
    declared = {"do": "notify", "channel": "chat", "seconds": 600, "then": None}
    database.fetch("UPDATE fleet.questions SET on_expiry = %s", json.dumps(declared))
    look(telling)
    move(database, 300)
    assert look(telling) == 0
    move(database, 601)
    connected(database)
    database.fetch("SELECT fleet.expire_questions()")
    assert look(telling) == 1
    telling.drop()
    assert len(chat.came) == 1


# How it is tried again


def test_what_fails_is_tried_again_under_the_same_id(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """At growing intervals, each with a link of its own; then it is sent."""
    hook.answers = [(500, {}), (404, {}), (200, {})]
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    assert look(notifier) == 0
    (row,) = fleet.notifications()
    assert (row.status, row.attempts, row.code) == ("waiting", 1, 500)
    move(database, 64)
    assert look(notifier) == 0 and len(hook.came) == 1
    move(database, 68)
    look(notifier)
    move(database, 500)
    assert look(notifier) == 1
    assert len(set(hook.ids())) == 1 and len(hook.came) == 3
    assert len({json.loads(body)["data"]["link"] for _, body in hook.came}) == 3
    assert database.value("SELECT count(*) FROM fleet.answer_links") == 3


def test_the_waits_are_those_of_standard_webhooks() -> None:
    """Up to days; what was asked for is kept, up to a day; then it is given up."""
    rng = random.Random(7)
    delays = [failed("no", n, rng)["delay"] for n in range(1, len(WAITS) + 1)]
    assert (
        all(wait <= delay <= wait * 1.1 for wait, delay in zip(WAITS, delays, strict=True))
        and 2.5 < sum(WAITS) / 86400 < 4
    )
    assert outcome(Reply(503, 900.0), 1, rng)["delay"] >= 900
    assert outcome(Reply(429, 1e9), 1, rng)["delay"] <= 86400 * 1.1
    assert failed("no", len(WAITS) + 1, rng)["status"] == "given_up"


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422, 429, 500, 503])
def test_other_answers_than_success_and_gone_are_tried_again(status: int) -> None:
    """A receiver may be misconfigured for a while."""
    assert outcome(Reply(status), 1, random.Random())["status"] == "waiting"


def test_a_receiver_that_is_gone_gets_nothing_more(
    settings: Make, notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """410 stops the address, for other questions too, until an operator says so, or there is
    another address."""
    hook.answers = [(410, {}), (200, {})]
    wait_for(fleet, database)
    ask(database, THREAD, "q2")
    look(notifier)
    move(database, 61)
    assert look(notifier) == 0
    assert len(hook.came) == 1 and statuses(fleet) == ["gone", "gone"]
    ask(database, THREAD, "q3")
    look(notifier)
    move(database, 1000)
    assert look(notifier) == 0 and len(hook.came) == 1
    assert fleet.notify_again("webhook") == 2
    assert look(notifier) == 2
    elsewhere = settings(webhook_url=f"{hook.url}/2")
    database.fetch("UPDATE fleet.notifications SET status = 'gone' WHERE question_id = 'q1'")
    notifier.drop()
    moved = Notifier(elsewhere, WebhookChannel(elsewhere))
    assert eventually(moved.lead)
    look(moved)
    move(database, 2000)
    assert look(moved) == 1
    moved.drop()


def test_a_receiver_that_is_away_does_not_end_it(
    settings: Make, fleet: Fleet, database: Database
) -> None:
    """Nobody listens: it is tried again."""
    away = settings(webhook_url="http://127.0.0.1:1/hook")
    notifier = Notifier(away, WebhookChannel(away))
    assert notifier.lead()
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    look(notifier)
    notifier.drop()
    (row,) = fleet.notifications()
    assert row.status == "waiting" and "could not be reached" in (row.error or "")
    assert "/hook" not in (row.error or "")


def test_a_private_address_is_not_called_unless_allowed(
    settings: Make, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """The reason is on record."""
    strict = settings(notify_private=False)
    notifier = Notifier(strict, WebhookChannel(strict))
    assert notifier.lead()
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    look(notifier)
    notifier.drop()
    assert hook.came == []
    assert "FLEET_NOTIFY_PRIVATE" in (fleet.notifications()[0].error or "")


def test_a_channel_that_raises_is_tried_again(
    settings: Make, fleet: Fleet, database: Database
) -> None:
    """An adapter's mistake costs an attempt, not the notifier; secrets are masked."""

    class Broken(WebhookChannel):
        def request(self, card: Card) -> Any:
            raise RuntimeError("no: token=abcdefgh12345678")

    notifier = Notifier(settings(), Broken(settings()))
    assert notifier.lead()
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    look(notifier)
    notifier.drop()
    (row,) = fleet.notifications()
    assert row.status == "waiting"
    assert "RuntimeError" in (row.error or "") and "abcdefgh" not in (row.error or "")


_DIES = """
from infra.settings import get_settings
from tests.harness import eventually
from workers.channels import WebhookChannel
from workers.notifier import Notifier

notifier = Notifier(get_settings(), WebhookChannel(get_settings()))
assert eventually(notifier.lead)
notifier.tick()
"""


@pytest.mark.parametrize(("point", "calls"), [("before", 1), ("after", 2)])
def test_a_notifier_that_dies_about_its_call_sends_it_under_the_same_id(
    point: str,
    calls: int,
    settings: Make,
    notifier: Notifier,
    hook: Receiver,
    fleet: Fleet,
    database: Database,
    fleet_settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    """kill -9 before the call, and between the answer and its record: receivers know a
    repetition by webhook-id."""
    wait_for(fleet, database)
    look(notifier)
    notifier.drop()
    move(database, 61)
    environment = clean_environment(
        **fleet_settings,
        webhook_url=hook.url,
        webhook_secret=KEY,
        notify_private="true",
        failpoints=f"notify.{point}_send=kill",
    )
    argv = [sys.executable, "-c", _DIES]
    died = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(hook.came) == calls - 1
    after = Notifier(settings(), WebhookChannel(settings()))
    assert eventually(after.lead)
    assert look(after) == 0
    move(database, 61 + 61)
    assert look(after) == 1
    assert look(after) == 0
    after.drop()
    assert len(hook.came) == calls and len({*hook.ids()}) == 1
    assert statuses(fleet) == ["sent"]


# What a channel says


def card(payload: Any, **more: Any) -> Card:
    fields = {name: None for name in Card.__slots__}
    told = {"thread_id": THREAD, "notification_id": "msg_1", "payload": payload}
    return Card(**fields | {"sent_at": "2026-11-30T10:00:00+00:00"} | told | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("Go on?", "Go on?"),
        ({"message": "Which room?", "data": {"a": 1}}, "Which room?"),
        ({"action_requests": [{"name": "pay", "args": {"n": 1}}]}, 'pay {"n": 1}'),
        ({"action_requests": [{"name": "pay", "description": "Pay Ann"}]}, "Pay Ann"),
        ({"action_requests": ["odd"]}, "odd"),
        ([1, 2], "[1, 2]"),
        (None, "null"),
        ("a\n b\tc", "a b c"),
        ("x" * 1000, "x" * 499 + "…"),
    ],
)
def test_a_line_of_text_says_what_is_asked(payload: Any, words: str) -> None:
    """In its own words where it has any, and never without an end."""
    assert card(payload).asks() == words


def test_a_payload_calls_nobody_in_a_chat(settings: Make, chat: Receiver) -> None:
    """What a graph asks may come from outside."""
    made = ChatChannel(settings(chat_webhook_url=chat.url)).request(
        card("<!channel> @here <http://evil|click>", link="https://fleet.example/answer/t")
    )
    text = json.loads(made.body)["text"]
    assert "<" not in text and "@here" not in text
    assert text.endswith("Answer: https://fleet.example/answer/t")


def test_a_large_payload_is_left_out(settings: Make) -> None:
    """The card says so."""
    body = WebhookChannel(settings()).request(card({"a": "x" * 70_000})).body
    data = json.loads(body)["data"]
    assert data["payload"] is None and data["truncated"] is True


def test_an_address_is_not_shown(settings: Make, chat: Receiver) -> None:
    """It is the secret of most incoming webhooks."""
    made = ChatChannel(settings(chat_webhook_url=chat.url)).request(card("?"))
    assert chat.url not in repr(made)


# Settings


def test_a_channel_without_an_address_is_none(settings_env: None) -> None:
    """By default nobody is told."""
    assert channels(get_settings()) == []


def test_an_adapter_of_ones_own_is_a_channel(
    settings: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the page about notifications shows it."""
    (tmp_path / "my_pager.py").write_text(
        "import json\n"
        "from workers.channels import Card, Request\n"
        "class Pager:\n"
        "    name = 'pager'\n"
        "    def __init__(self, settings):\n"
        "        self.address = 'https://pager.example/x'\n"
        "    def request(self, card: Card) -> Request:\n"
        "        return Request(self.address, json.dumps({'summary': card.asks()}).encode())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = channels(settings(notify_adapters="my_pager:Pager"))
    assert [channel.name for channel in made] == ["webhook", "pager"]
    assert made[1].request(card("Go on?")).body == b'{"summary": "Go on?"}'


@pytest.mark.parametrize(
    "given", [{"notify_adapters": "no_such:Thing"}, {"notify_channels": "webhok"}]
)
def test_a_channel_that_is_none_is_refused_at_the_start(settings: Make, given: Any) -> None:
    """With its name and what there is."""
    with pytest.raises(SettingsError, match=r"no_such|webhok"):
        channels(settings(**given))


def test_a_webhook_without_a_good_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, settings_env: None
) -> None:
    """It would be unsigned; the key is not shown."""
    monkeypatch.setenv("FLEET_WEBHOOK_URL", "https://hooks.example")
    for key in "", "whsec_c2hvcnQ=", "no base64 at all":
        monkeypatch.setenv("FLEET_WEBHOOK_SECRET", key)
        get_settings.cache_clear()
        with pytest.raises(SettingsError, match="openssl rand") as caught:
            get_settings()
        assert "c2hvcnQ" not in str(caught.value) and "at all" not in str(caught.value)


def test_a_trial_of_chaos_tells_nobody(settings: Make, tmp_path: Path) -> None:
    """Its workers have the settings of whoever runs it."""
    assert begin(settings(chaos_trial=tmp_path), "w@test") == []


def test_what_was_sent_goes_with_its_question(
    notifier: Notifier, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """Retention removes both, and the links."""
    wait_for(fleet, database)
    look(notifier)
    move(database, 61)
    assert look(notifier) == 1
    settle(database, THREAD, "done")
    move(database, 100 * 86400)
    Pruner(get_settings()).run_once()
    assert database.value("SELECT count(*) FROM fleet.questions") == 0
    assert fleet.notifications() == []
    assert database.value("SELECT count(*) FROM fleet.answer_links") == 0


def test_a_worker_has_a_notifier_for_each_channel(
    workers: Any, hook: Receiver, fleet: Fleet, database: Database
) -> None:
    """A thread of its parent process, like the sweep; what it leads is in its log."""
    workers.start(
        webhook_url=hook.url, webhook_secret=KEY, notify_private="true", notify_after="0.1"
    )
    wait_for(fleet, database)
    eventually(lambda: len(hook.came) == 1, timeout=30)
    eventually(lambda: statuses(fleet) == ["sent"])
