"""Examples of what the doors answer, for the OpenAPI document: a refund that was asked about."""

from typing import Any

_ID, _PERSON = "refund:A1001", "ann"
_STARTED, _ASKED, _DONE = (
    f"2026-03-01T09:{at}Z" for at in ("00:00.616222", "00:00.726034", "05:12.786855")
)
_QUESTION, _ANSWER = "a9412f0643d585db3a5765898f26b006", "9e924da4-8a4d-47de-9354-9202ca8f52fd"
_CHECKPOINTS = "1f1ecf86-ea05-6e97-8001-b4bf4a489086", "1f1ecf86-ea8c-68f3-8002-8def19d0f0c1"
_STATE = {"order_id": "A1001", "user_id": "u_42", "amount": "1500.00"}
_ROW = {
    "thread_id": _ID,
    "tenant": "",
    "graph": "refund",
    "key": "A1001",
    "generation": 1,
    "status": "waiting",
    "last_error": None,
    "created_at": _STARTED,
    "updated_at": _ASKED,
}
_OPEN = {
    "question_id": _QUESTION,
    "kind": "approve",
    "payload": {
        "action_requests": [
            {
                "name": "refund",
                "args": {"order_id": "A1001", "amount": "1500.00"},
                "description": "Refund 1500.00 for order A1001?",
            }
        ],
        "review_configs": [
            {"action_name": "refund", "allowed_decisions": ["approve", "reject"]},
        ],
    },
    "response_schema": None,
    "asked_at": _ASKED,
    "expires_at": None,
}
_ANSWERED = {
    **_OPEN,
    "status": "answered",
    "answer": {"decisions": [{"type": "approve"}]},
    "answered_by": _PERSON,
    "answered_at": "2026-03-01T09:05:12.774220Z",
}
_MAIL = {
    "seq": 1,
    "message_id": "order-A1001",
    "kind": "start",
    "status": "done",
    "crashes": 0,
    "failures": 0,
    "generation": 1,
    "error": None,
    "accepted_at": _STARTED,
    "available_at": _STARTED,
    "done_at": _ASKED,
}
_EFFECT = {
    "request_id": "fr_e7d5b662d801849d22e209068b823c63",
    "name": "payments.refund",
    "state": "done",
    "policy": "resend",
    "attempts": 1,
    "result": {"refund_id": "re_000001", "status": "succeeded"},
    "error": None,
    "effect_key": "/payments.refund:order:A1001",
    "generation": 1,
    "seq": 2,
    "started_at": "2026-03-01T09:05:12.780623Z",
    "finished_at": "2026-03-01T09:05:12.784192Z",
}
_STEP = {
    "checkpoint_id": _CHECKPOINTS[1],
    "subgraph": None,
    "parent": _CHECKPOINTS[0],
    "at": "2026-03-01T09:05:12.779572+00:00",
    "step": 2,
    "source": "loop",
    "nodes": ["require_approval"],
    "changed": {"approval": "approved"},
    "appended": {},
    "unknown": [],
    "next": ["process_refund"],
    "asks": [],
    "failed": [],
}
_WAITING = {
    **_ROW,
    "epoch": 1,
    "owner": None,
    "cancel_requested": False,
    "question": _OPEN,
    "questions": [_OPEN],
    "messages": [_MAIL],
    "effects": [],
    "state": _STATE,
}
_AFTER = {
    **_WAITING,
    "status": "done",
    "updated_at": _DONE,
    "epoch": 2,
    "question": None,
    "questions": [],
    "messages": [
        _MAIL,
        {**_MAIL, "seq": 2, "message_id": _ANSWER, "kind": "answer", "done_at": _DONE},
    ],
    "effects": [_EFFECT],
    "state": {**_STATE, "approval": "approved", "outcome": "refunded", "refund_id": "re_000001"},
}

#: Of each schema that a 2xx answers with.
EXAMPLES: dict[str, list[Any]] = {
    "Health": [{"status": "ok"}],
    "Readiness": [
        {
            "status": "ready",
            "checks": [
                {"name": "postgres", "ok": True, "detail": "reachable"},
                {"name": "broker", "ok": False, "detail": "The broker is not reachable."},
            ],
            "warnings": ["The broker is not reachable."],
        }
    ],
    "Receipt": [
        {
            "thread_id": _ID,
            "message_id": "order-A1001",
            "seq": 1,
            "outcome": outcome,
            "published": outcome == "accepted",
            "paused": False,
        }
        for outcome in ("accepted", "duplicate")
    ],
    "ThreadInFull": [_WAITING, _AFTER],
    "Threads": [{"threads": [_ROW]}],
    "History": [{"thread_id": _ID, "checkpoints": [_STEP], "before": _CHECKPOINTS[1], "notes": []}],
    "ChatMessages": [
        {
            "thread_id": "booking:7f3a",
            "messages": [
                {"message_id": "m-1", "role": "user", "text": "A room for eight on Monday"},
                {"message_id": "lc_run--1", "role": "assistant", "text": "At what time?"},
            ],
            "earlier": 12,
            "before": "m-1",
        }
    ],
    "Questions": [{"thread_id": _ID, "questions": [_ANSWERED]}],
    "Cancellation": [
        {"thread_id": _ID, "outcome": "cancelled", "status": "cancelled", "in_doubt": []},
        {"thread_id": _ID, "outcome": "requested", "status": "running", "in_doubt": []},
    ],
    "State": [
        {
            "thread_id": _ID,
            "status": "waiting",
            "questions": [_OPEN],
            "next": ["require_approval"],
            "messages": [],
            "values": _STATE,
            "last_event_id": "1-4",
            "last_error": None,
        }
    ],
    "Session": [
        {
            "session_id": "HS5bh8Rb88av9Ii9uRSF_aUnZumG-WrK",
            "tenant": "",
            "user_id": "u_42",
            "graph": "booking",
            "thread_id": "booking:HkdJb9BXCmzAUJfcPnsHsoRNPU0hzwkn",
            "state": "interrupted",
            "thread_status": "waiting",
            "busy": False,
            "created_at": _STARTED,
            "last_seen_at": _ASKED,
            "closed_at": None,
            "absent": 3.2,
            "sensitive": False,
        }
    ],
}
#: Of a stream of AG-UI.
STREAM = (
    'data: {"type":"RUN_STARTED","threadId":"booking:7f3a","runId":"r1","protocolVersion":"1.0"}\n'
    "\n"
    "id: 41-2\n"
    'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"lc_run--1","delta":"At what"}\n'
    "\n"
)
