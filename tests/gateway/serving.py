"""A gateway in the test's own process: real uvicorn on a free port of 127.0.0.1."""

import threading
import time
from types import TracebackType
from typing import Any, Self

import httpx
import jwt

from infra.settings import Settings
from producers.gateway import keys
from producers.gateway.auth import Role
from producers.gateway.database import Database
from producers.gateway.serve import listening, server
from tests.harness import eventually

SECRET = "a secret of at least thirty-two bytes, for tests"
ISSUER, AUDIENCE = "https://issuer.test", "fleet"
#: Settings of a gateway that takes the tests' tokens.
JWT = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


class Gateway:
    """Serves inside of the `with`. `settings` are FLEET_ settings in small letters."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self._socket = listening("127.0.0.1", 0)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}/ws"
        self._server = server(self.settings)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )

    @property
    def state(self) -> Any:
        """The app's, as doors see it."""
        return self._server.config.app.state  # type: ignore[union-attr]

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """A client of it, with this token."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    def key(
        self, *roles: str, tenant: str = "", user: str | None = None, days: float | None = None
    ) -> str:
        """A new API key."""
        settings = self.settings
        database = Database(settings.require_postgres(), settings.client_timeout)
        try:
            named = [Role(role) for role in roles]
            return keys.create(database, "test", named, tenant=tenant, user=user, days=days)[0]
        finally:
            database.close()

    def end(self) -> None:
        """As SIGTERM does it."""
        self._server.should_exit = True
        self._thread.join(15)
        assert not self._thread.is_alive(), "the gateway did not end"

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(lambda: self._server.started, 20)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._socket.close()


def token(
    user: str = "u_1", *, tenant: str = "", roles: Any = (), expires_in: float = 600, **claims: Any
) -> str:
    """A JWT as the tests' issuer makes it."""
    made = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": user,
        "exp": time.time() + expires_in,
        "tenant": tenant,
        "roles": list(roles) if isinstance(roles, tuple) else roles,
    }
    return jwt.encode(made | claims, SECRET, algorithm="HS256")


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The members of the problem that it is."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert (found["status"], found["code"]) == (status, code)
    assert found["detail"] and "Traceback" not in answer.text
    return found
