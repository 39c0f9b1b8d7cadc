"""`fleet gateway`: the doors over HTTP, in the foreground."""

import sys
from typing import Annotated

import typer

from .options import Json


def register(app: typer.Typer) -> None:
    app.command()(gateway)


def gateway(
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen; FLEET_GATEWAY_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="0: any free one; FLEET_GATEWAY_PORT."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve REST, AG-UI, WebSocket and the chat page until Ctrl-C or SIGTERM.

    Callers show an API key (`fleet keys`) or a JSON Web Token. FLEET_GATEWAY_AUTH=off lets
    everybody in, and is taken on this machine's own addresses only.
    """
    from infra import telemetry
    from infra.masking import Rule
    from infra.settings import get_settings

    from ..gateway.serve import serve

    settings = get_settings()

    def started(url: str) -> None:
        if as_json:
            from .output import print_json

            print_json({"url": url, "auth": settings.gateway_auth})
        else:
            typer.echo(f"The gateway listens on {url}")
        sys.stdout.flush()

    rule = Rule.besides(name for name in settings.mask_fields.split(",") if name.strip())
    telemetry.configure(log_format=settings.log_format, rule=rule)
    serve(
        settings,
        settings.gateway_host if host is None else host,
        settings.gateway_port if port is None else port,
        started,
    )
