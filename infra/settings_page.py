"""docs/settings.md, made from the settings: `python -m infra.settings_page > docs/settings.md`.

A setting without a text here, or a text without a setting, is an error, so that the page
tells of all of them.
"""

from pathlib import Path
from typing import Any

from infra.setting_sources import PREFIX
from infra.settings import Settings

INTRO = """\
# Settings

<!-- Made by `python -m infra.settings_page > docs/settings.md`; change it there. -->

Each is read once, when a process starts; the first source that has it wins:

1. an environment variable, by the name below;
2. the same name in `.env` in the working directory;
3. `fleet.toml` there, in small letters without the prefix: `turn_timeout = 300`;
4. the addresses that a running `fleet up` keeps in its data folder.

Every name may end in `_FILE`: `FLEET_POSTGRES_URL_FILE=/run/secrets/postgres_url` reads the
value from that file. A name that is none, and a value that can't be used, are refused at the
start, with the name that was probably meant. Workers of one fleet want the same values.
"""

#: Heading → setting → what it is for.
SECTIONS = {
    "Addresses": {
        "postgres_url": "Postgres, 14 or later: `postgresql://user:password@host/db`. No "
        "transaction pooler: a claim is a lock of its session.",
        "redis_url": "The broker, Redis 6.2 or later or Valkey: `redis://:password@host/0`.",
        "shop_url": "The shop that the `refund` graph calls; `fleet up` brings one.",
        "graphs_file": "Which graphs there are: see [graphs](graphs.md).",
        "data_dir": "Data, logs and addresses of `fleet up`; by default `.fleet` here, or a folder "
        "elsewhere where Postgres could not use that one.",
        "client_timeout": "A producer, or a command, that has had no answer from Postgres for so "
        "long gives up. Below 10 it also does so where another open transaction is in the way.",
    },
    "Work": {
        "queue": "Celery's queue of the graphs that name none of their own.",
        "approval_limit": "`refund` asks a person above this amount.",
        "turn_timeout": "A turn without progress (a step or an effect) for so long is taken away "
        "and goes on elsewhere: more than the longest node needs.",
        "hung_grace": "A node that has not returned so long after its turn was taken away costs "
        "its process, so that the slot is free again; in the threads pool once a tenth of its "
        "slots hang, after the other turns.",
        "give_up_after": "A message that only failed for so long is dead.",
        "max_crashes": "A message whose worker died so often is dead.",
        "backoff_base": "The first wait after a transient failure is up to this; it doubles.",
        "backoff_max": "No wait between attempts is longer.",
        "turns_per_task": "A Celery task goes on with other due mail, for at most so many turns.",
        "wakeups_per_slot": "The queue is given at most so many wake-ups for each slot; the rest "
        "of a backlog waits in Postgres.",
    },
    "Takeover and saving": {
        "sweep_interval": "How often the leader looks for lost turns and for mail that is due.",
        "election_interval": "How often the other workers try to lead.",
        "redelivery_after": "Mail that has been due for so long is woken again.",
        "flush_after": "Checkpoints of a running turn are committed when they are so old.",
        "pulse_interval": "How often a slot shows Postgres that its session is alive.",
    },
    "Looking on": {
        "log_format": "`auto` is text on a terminal, else JSON.",
        "mask_fields": "Further names of fields that logs hide, parted by commas; see "
        "[data](data.md).",
        "heartbeat_file": "A file that a live worker keeps fresh, for `fleet ready --live`.",
        "metrics_port": "A page for Prometheus at this port; see [metrics](metrics.md).",
        "metrics_host": "The address that it listens on.",
    },
    "Events of a thread": {
        "events_kept": "Batches of a thread's events that the broker keeps; a client that was "
        "away for longer is given a snapshot.",
        "events_age": "Batches older than this go at the thread's next one, or all so long "
        "after the last.",
        "token_interval": "Tokens of a model that come within so long are sent together.",
    },
    "The gateway": {
        "gateway_host": "The address that it listens on; another than this machine's takes "
        "`gateway_auth` on.",
        "gateway_port": "Its port.",
        "gateway_auth": "`off`: whoever reaches it may do everything. Only on this machine.",
        "gateway_rate": "A caller may send so many requests in a minute; each gateway counts "
        "for itself.",
        "gateway_body": "The largest body of a request, in bytes.",
        "public_url": "Its address as people's browsers know it, for links.",
        "allowed_origins": "Web pages, parted by commas, that may talk to it besides its own: "
        "`https://chat.example.com`.",
        "jwt_issuer": "Whose tokens are taken (`iss`).",
        "jwt_audience": "For whom they are made (`aud`).",
        "jwt_secret": "The key of HS256 tokens.",
        "jwt_jwks_url": "Where the public keys of RS256 and ES256 tokens are.",
    },
    "Sessions and questions": {
        "reconnect_window": "A client that comes back within it just goes on; later its session "
        "is rebuilt.",
        "session_timeout": "A session without a client for so long has timed out.",
        "notify_after": "A question that no client has looked at for so long is sent out: see "
        "[notifications](notifications.md).",
        "webhook_url": "Where to: signed, as Standard Webhooks are.",
        "webhook_secret": "The key that it is signed with, `whsec_…`; while it changes, the new "
        "one and the old one, parted by a space.",
        "chat_webhook_url": "An incoming webhook of a chat, which is told with a link.",
        "notify_private": "Whether these may be addresses of a private network.",
        "notify_channels": "Which of `webhook`, `chat` and the adapters are told, parted by "
        "commas; the others only where a question's `on_expiry` names them. All, if empty.",
        "notify_adapters": "Further channels, `package.module:attribute`, parted by commas; see "
        "[notifications](notifications.md).",
    },
    "The booking assistant": {
        "booking_zone": "The time zone of its rooms: `Asia/Shanghai`.",
        "model": "Its model, by the name that LangChain's `init_chat_model` takes; without one it "
        "goes by rules.",
        "model_base_url": "Another server that speaks OpenAI's protocol.",
        "model_api_key": "The key for it.",
    },
    "How long things are kept": {
        "keep_history_days": "Checkpoints but the last two.",
        "keep_checkpoints_days": "The last two as well.",
        "keep_messages_days": "Mail; and for how long its message_id is known.",
        "keep_questions_days": "Questions and answers.",
        "keep_events_days": "Events; also old ones of a thread that is in use and at rest.",
        "keep_effects_days": "The ledger; not shorter than mail and checkpoints.",
        "keep_keyed_effects_days": "Effects under a business key; not shorter than the ledger.",
        "keep_threads_days": "The threads themselves; not shorter than all of the above.",
        "keep_rejected_wakeups_days": "Messages in the queue that were no wake-ups.",
        "prune_interval": "How often what is over is removed.",
    },
    "For tests": {
        "failpoints": "Where processes are to fail, `effect.after_call=kill:0.1`; the head of "
        "`infra/failpoints.py` has the form.",
        "failpoint_log": "A file with a line for each time that one acted.",
        "failpoint_once": "A folder; each acts once over all processes.",
        "chaos_trial": "What `fleet chaos` tells its workers; nothing else sets it.",
    },
}

_LIMITS = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "to"}

_NOTES = {
    "How long things are kept": "Of finished threads only, in days since their last change; 0 is "
    "for ever. What each covers: [data](data.md).\n\n",
}


def page() -> str:
    """The whole page. Raises ValueError where settings and texts differ."""
    shapes = Settings.model_json_schema()["properties"]
    told = [name for texts in SECTIONS.values() for name in texts]
    if odd := set(told) ^ set(shapes):
        names = ", ".join(sorted(odd))
        raise ValueError(f"settings and their texts in {Path(__file__).name} differ: {names}")
    parts = [INTRO]
    for heading, texts in SECTIONS.items():
        rows = [_row(name, shapes[name], text) for name, text in texts.items()]
        head = f"## {heading}\n\n{_NOTES.get(heading, '')}| name | value | default | for |\n"
        parts.append(head + "| --- | --- | --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def _row(name: str, shape: dict[str, Any], text: str) -> str:
    default = shape.get("default")
    shown = "" if default in (None, "") else f"`{default}`"
    return f"| `{PREFIX}{name.upper()}` | {_kind(name, shape)} | {shown} | {text} |\n"


def _kind(name: str, shape: dict[str, Any]) -> str:
    """What may stand there, in words; of a choice the first kind, which is not null."""
    shape = shape.get("anyOf", [shape])[0]
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if name.endswith("_url"):
        return "URL"
    if shape["type"] == "string":
        return "path" if shape.get("format") == "path" else "text"
    if name == "gateway_body":
        return "bytes"
    unit = "whole number" if shape["type"] == "integer" else _unit(name)
    limits = [f"{word} {shape[key]:g}" for key, word in _LIMITS.items() if key in shape]
    return " ".join([unit, *limits])


def _unit(name: str) -> str:
    if name.endswith("_days"):
        return "days"
    return "number" if name == "approval_limit" else "seconds"


if __name__ == "__main__":
    print(page(), end="")
