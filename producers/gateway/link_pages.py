"""The pages behind a link, as HTML without a script, and the headers that go with them."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Any

from starlette.responses import Response

from ..wording import words_of
from .link_forms import Form, form_of

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; }
body { padding: 0 1rem; }
pre { background: #8881; padding: .75rem; overflow: auto; max-height: 20rem; }
pre { white-space: pre-wrap; }
button { font: inherit; padding: .5rem 1.25rem; margin: .25rem .5rem .25rem 0; }
textarea { font: inherit; width: 100%; box-sizing: border-box; }
.said { border-left: .25rem solid #c60; padding-left: .75rem; }
small { color: #777; }
:root { color-scheme: light dark; }
"""
_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex, nofollow",
    "X-Frame-Options": "DENY",
}
_TYPED = {
    "text": "Your answer",
    "json": "Your answer: JSON, or plain text",
    "note": "A note, if you like",
}
_LONGEST = 20_000


def ask(question: Mapping[str, Any], problem: str = "", status: int = 200) -> Response:
    """The question with its form; `problem`: what was wrong with the form that was sent."""
    parts = [f"<h1>{escape(words_of(question['payload'], 2000))}</h1>"]
    if problem:
        parts.append(f'<p class="said" role="alert">{escape(problem)}</p>')
    parts += [_form(form_of(question)), _facts(question)]
    # Without any referrer a browser sends the form with the Origin "null"; of this one's the
    # link's token is no part.
    return _page("A question", "".join(parts), status, "strict-origin")


def tell(title: str, text: str, status: int = 200) -> Response:
    """A page that only says something."""
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", status)


def moment(at: Any) -> str:
    """A time of the database's for people; as it is where it is none."""
    try:
        return f"{datetime.fromisoformat(str(at)):%Y-%m-%d %H:%M:%S %Z}"
    except ValueError:
        return str(at)


def _form(form: Form) -> str:
    typed = ""
    if form.typed is not None:
        typed = (
            f'<p><label for="text">{_TYPED[form.typed]}</label>'
            '<textarea id="text" name="text" rows="3"></textarea></p>'
        )
    buttons = "".join(
        f'<button name="choice" value="{number}">{escape(button.label)}</button>'
        for number, button in enumerate(form.buttons)
    )
    if form.typed in ("text", "json"):
        typed += "<button>Send</button>"
    # Posts to the address it is at, whatever a proxy has made of it.
    return f'<form method="post"><p>{buttons}</p>{typed}</form>'


def _facts(question: Mapping[str, Any]) -> str:
    shown = json.dumps(question["payload"], ensure_ascii=False, indent=2)
    if len(shown) > _LONGEST:
        shown = shown[:_LONGEST] + "…"
    until = question["expires_at"]
    deadline = f"; it can be answered until {escape(moment(until))}" if until else ""
    return (
        f"<details><summary>All of the question</summary><pre>{escape(shown)}</pre></details>"
        f"<p><small>Asked by {escape(question['thread_id'])}{deadline}. This link answers it "
        "once.</small></p>"
    )


def _page(title: str, body: str, status: int, referrer: str = "no-referrer") -> Response:
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )
    return Response(page, status, HEADERS | {"Referrer-Policy": referrer}, "text/html")
