"""Settings of live sessions: events, the gateway, sessions, the notifier, the model."""

import re
from base64 import b64decode
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, Field, ValidationInfo, field_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
#: A host as browsers write it in an Origin: ASCII, without wildcards.
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


class LiveSettings(BaseModel):
    """What `infra.settings.Settings` has of these; durations are in seconds."""

    # Events, in the broker.
    events_kept: Count = 2000
    events_age: Seconds = 600
    token_interval: Seconds = 0.05

    # The gateway.
    gateway_host: str = "127.0.0.1"
    gateway_port: Annotated[int, Field(ge=1, le=65535)] = 8800
    gateway_auth: Literal["on", "off"] = "on"
    #: Requests of one caller in a minute, to one gateway.
    gateway_rate: Count = 6000
    #: Bytes of a request's body.
    gateway_body: Count = 1 << 20
    public_url: str | None = None
    #: Separated by commas.
    allowed_origins: str = ""
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_secret: str | None = Field(None, repr=False)
    jwt_jwks_url: str | None = None

    # Sessions of chat pages.
    reconnect_window: Seconds = 300
    session_timeout: Seconds = 1800

    # Questions that nobody looks at.
    notify_after: Seconds = 60
    webhook_url: str | None = Field(None, repr=False)
    webhook_secret: str | None = Field(None, repr=False, validate_default=True)
    chat_webhook_url: str | None = Field(None, repr=False)
    notify_private: bool = False
    #: Separated by commas; all that are there where none is named.
    notify_channels: str = ""
    #: `module:attribute` each, separated by commas.
    notify_adapters: str = ""

    # The booking assistant: where its rooms are; its model, its rules where there is none.
    booking_zone: str = "UTC"
    model: str | None = None
    model_base_url: str | None = None
    model_api_key: str | None = Field(None, repr=False)

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, value: str) -> str:
        for origin in filter(None, map(str.strip, value.split(","))):
            if not _names_a_page(origin):
                raise ValueError(
                    f"'{origin}' names no page: write each as https://chat.example.com, with "
                    "commas between them; there are no wildcards"
                )
        return value

    @field_validator(
        "public_url",
        "jwt_issuer",
        "jwt_audience",
        "jwt_secret",
        "jwt_jwks_url",
        "webhook_url",
        "webhook_secret",
        "chat_webhook_url",
        "model",
        "model_base_url",
        "model_api_key",
        mode="before",
    )
    @classmethod
    def _blank_is_unset(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("booking_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is no time zone: write it as Asia/Shanghai") from None
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _is_signing_key(cls, value: str | None, info: ValidationInfo) -> str | None:
        """What Standard Webhooks asks for; a webhook without a signature is none."""
        if value is None:
            if info.data.get("webhook_url"):
                raise ValueError("FLEET_WEBHOOK_URL needs one: `openssl rand -base64 32`")
            return None
        for key in value.split():
            try:
                size = len(b64decode(key.removeprefix("whsec_"), validate=True))
            except ValueError:
                size = 0
            if not 24 <= size <= 64:
                raise ValueError("a key is 24 to 64 bytes in base64: `openssl rand -base64 32`")
        return value

    @field_validator(
        "public_url", "jwt_jwks_url", "webhook_url", "chat_webhook_url", "model_base_url"
    )
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("starts with http:// or https://")
        return value


def _names_a_page(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and _HOST.fullmatch(host) is not None
