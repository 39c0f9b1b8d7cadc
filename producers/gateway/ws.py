"""WebSocket of chat pages; docs/websocket.md has the protocol."""

import structlog
from fastapi import APIRouter, WebSocket

from . import origins
from .slow import TooSlow
from .ws_connection import Connection
from .ws_line import Gone, Line
from .ws_opening import End, opened

router = APIRouter()
_log = structlog.get_logger(__name__)


@router.websocket("/ws")
async def chat(socket: WebSocket) -> None:
    state = socket.app.state
    if not origins.allowed(socket, state.settings):
        await socket.close()  # before it was accepted: 403
        return
    await socket.accept()
    line = Line(socket)
    try:
        session = await opened(line, state)
        with state.presence.watching(session.session.thread_id, guest=session.guest):
            await Connection(state, line, session).run()
    except Gone:
        return
    except End as end:
        await line.close(end.code, end.reason)
    except TooSlow:
        await line.close(1013, "try_again")
    except Exception:
        _log.exception("websocket_fault")
        await line.close(1011, "internal_error")
