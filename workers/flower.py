"""Flower as the fleet runs it: behind a login, and only to look.

For a Flower configuration file (`--conf`), which is Python:

    from workers.flower import login, only_to_look
    basic_auth = login()
    only_to_look()

Turns are controlled by the fleet's own commands, through Postgres. A task that Flower
applied, revoked or timed out would be none of the fleet's doing.
"""

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import tornado.web
from flower.urls import handlers  # type: ignore[import-untyped]
from flower.views import BaseHandler  # type: ignore[import-untyped]

#: Asked by POST, for the length of its parameters.
_READS_BY_POST = "/tasks/datatable"
_ALL_OTHERS = ".*"
#: Served without a login by Flower.
_OPEN = ("/metrics",)


def login() -> list[str]:
    """`["user:password"]` from the file that FLOWER_LOGIN_FILE names, or from
    FLOWER_BASIC_AUTH. Ends the process, with the reason, where there is none: without a login
    anybody may look.
    """
    path = os.environ.get("FLOWER_LOGIN_FILE")
    if not path:
        given = os.environ.get("FLOWER_BASIC_AUTH", "")
    else:
        try:
            given = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            _refuse(f"The file {path} of FLOWER_LOGIN_FILE cannot be read: {exc}.")
    logins = [one for one in given.split(",") if one]
    if not logins or any(not all(one.partition(":")) for one in logins):
        _refuse("Flower has no login, user:password.")
    return logins


def only_to_look() -> None:
    """Take away what changes anything; before Flower makes its application."""
    handlers[:] = [_looking(handler) for handler in handlers if _path(handler) not in _OPEN]


def _looking(handler: Any) -> Any:
    # A tornado URLSpec, or (path, class[, arguments]).
    shown = handler[1] if isinstance(handler, tuple) else handler.handler_class
    looks_only = shown.post is tornado.web.RequestHandler.post
    if looks_only or _path(handler) in (_READS_BY_POST, _ALL_OTHERS):
        return handler
    return (handler[0] if isinstance(handler, tuple) else handler.regex.pattern, _Refused)


def _path(handler: Any) -> str:
    path = handler[0] if isinstance(handler, tuple) else handler.regex.pattern
    return str(path).rstrip("$")


class _Refused(BaseHandler):  # type: ignore[misc]
    """In the place of every handler that changes something."""

    @tornado.web.authenticated
    def _say_no(self, *_: str) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("This Flower is only to look. Use the fleet's own commands.\n")

    get = post = put = delete = _say_no


def _refuse(what: str) -> NoReturn:
    sys.exit(
        f"error: {what} Put user:password in a file and name it in FLOWER_LOGIN_FILE, or set "
        "FLOWER_BASIC_AUTH; not on the command line, which every user of the machine can read."
    )
