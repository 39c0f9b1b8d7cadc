"""`fleet up`: the whole stack in the foreground, its data kept; Ctrl-C stops all of it."""

import os
import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..payloads import shown
from .options import Json

if TYPE_CHECKING:
    from ..local.addresses import Addresses


class Pool(StrEnum):
    prefork = "prefork"
    threads = "threads"


def register(app: typer.Typer) -> None:
    app.command()(up)


Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="0: any free one. Left out: that of last time or 7420 to 7424, if it is free.",
    ),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="PATH", help="Where the data is kept; FLEET_DATA_DIR."),
]
WithGateway = Annotated[
    bool, typer.Option("--gateway/--no-gateway", help="With the gateway, open to this machine.")
]
WithFlower = Annotated[bool, typer.Option("--flower/--no-flower", help="With Flower to look on.")]


def up(
    data_dir: DataDir = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Slots; one per core.")
    ] = None,
    pool: Annotated[Pool, typer.Option("--pool", help="Celery's pool.")] = Pool.prefork,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="With a worker, or start your own.")
    ] = True,
    gateway: WithGateway = True,
    flower: WithFlower = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show the logs as they grow.")] = False,
    postgres_port: Port = None,
    redis_port: Port = None,
    shop_port: Port = None,
    gateway_port: Port = None,
    flower_port: Port = None,
    as_json: Json = False,
) -> None:
    """Run Postgres, a broker, the dev shop, a worker and the gateway until Ctrl-C.

    The data is kept; the next `fleet up` goes on with it.

    With FLEET_POSTGRES_URL and FLEET_REDIS_URL set, these servers are used and none is
    started; with FLEET_SHOP_URL, that shop.
    """
    from ..local.following import Followed
    from ..local.host import Host, Wishes, default_concurrency, own_settings
    from ..local.signals import STOPPED, ending_on_signals

    _choose_folder(data_dir)
    ports = {"postgres": postgres_port, "redis": redis_port}
    ports |= {"shop": shop_port, "flower": flower_port, "gateway": gateway_port}
    slots = (concurrency or default_concurrency()) if worker else 0
    host = Host(own_settings(), Wishes(ports, slots, pool.value, flower, gateway), _say)
    with ending_on_signals(), host as addresses:
        try:
            _show(addresses, as_json)
            followed = Followed(addresses.logs if logs else {})
            host.serve(lambda: followed.print_new(_say))
        except STOPPED:
            _say("Stopping. Ctrl-C again stops at once.")
    _say("Stopped. The data is kept; `fleet up` goes on with it.")


def _choose_folder(given: str | None) -> None:
    """Set the option as the setting, for us and for all that we start.

    Raises SettingsError or ServerFailed for what can be no data folder.
    """
    from infra.folders import check_data_folder

    if given is not None:
        if not given.strip():
            raise typer.BadParameter(
                "It is empty; leave it out for the folder of this project",
                param_hint="--data-dir",
            )
        os.environ["FLEET_DATA_DIR"] = os.path.abspath(os.path.expanduser(given))
    if os.environ.get("FLEET_DATA_DIR", "").strip():
        check_data_folder(Path(os.environ["FLEET_DATA_DIR"]))


def _say(text: str) -> None:
    """A message; it may be that the terminal is gone, which must stop nothing."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _show(addresses: "Addresses", as_json: bool) -> None:
    if as_json:
        from .output import print_json

        print_json(addresses.as_dict())
        sys.stdout.flush()
        return
    facts = {
        "Postgres": addresses.postgres,
        "broker": addresses.broker,
        "shop": addresses.shop,
        "gateway": addresses.gateway,
        "chat": _chat(addresses),
        "Flower": _flower(addresses),
        "passwords": f"in the URLs of {_near(addresses.stack_file)}",
        "logs": ", ".join(_near(path) for path in addresses.logs.values()),
        "data": _near(addresses.data_dir),
    }
    typer.echo("\nThe fleet is up.\n")
    for name, value in facts.items():
        if value:
            typer.echo(f"  {name:<10} {value}")
    for graph, reason in addresses.broken.items():
        typer.echo(f"  not served {graph}: {shown(reason, 500)}")
    typer.echo("\nIn another terminal:\n")
    for line in _examples(addresses):
        typer.echo(f"  {line}")
    typer.echo("\nCtrl-C stops all of it, and nothing is lost.")
    sys.stdout.flush()


def _chat(addresses: "Addresses") -> str:
    """The page's own graph has to be served for it."""
    there = addresses.gateway and "booking" in addresses.graphs
    return f"{addresses.gateway}/chat" if there else ""


def _flower(addresses: "Addresses") -> str:
    if addresses.flower is None or addresses.flower_password_file is None:
        return ""
    return f"{addresses.flower}  user fleet, password in {_near(addresses.flower_password_file)}"


def _examples(addresses: "Addresses") -> list[str]:
    fleet = "./fleet" if Path("fleet").is_file() else _command("fleet")
    celery = _command("celery")
    lines = [f"cd {shlex.quote(str(Path.cwd()))}"]
    if os.environ.get("FLEET_DATA_DIR"):
        lines += [f"export FLEET_DATA_DIR={shlex.quote(str(addresses.data_dir))}"]
    if "refund" in addresses.graphs:
        given = """--input '{"user_id": "u_42"}' --wait 30"""
        lines += [f"{fleet} submit refund A1001 {given}    # small: refunded at once"]
        lines += [f"{fleet} submit refund A1002 {given}    # large: asks a person"]
        lines += [f"{fleet} answer refund:A1002 --approve"]
    elif addresses.graphs:
        lines += [f"{fleet} submit {addresses.graphs[0]} KEY --input '{{}}' --wait 30"]
    return [*lines, f"{fleet} threads", f"{celery} -A workers inspect active"]


def _command(name: str) -> str:
    """How a command of our environment is called from here."""
    return name if shutil.which(name) else _near(Path(sys.executable).with_name(name))


def _near(path: Path) -> str:
    """Relative to this folder where it is in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
