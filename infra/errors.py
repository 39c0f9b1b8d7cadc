"""Errors that people see, each as one sentence saying what happened and what to do next.

FleetError
├── SettingsError         a setting is missing, unknown or not usable      exit code 2
├── PostgresUnavailable   Postgres refuses, is too old or does not answer
├── BrokerUnavailable     the broker refuses or does not answer
├── MigrationsMissing     the database is older than this code
├── DatabaseNewer         the database has changed in a way that this code can't work with
├── OlderWorkers          workers run that a migration would break
├── PruneRunning          another process prunes (infra.retention)
├── PoolerRefused         a transaction pooler is in front of Postgres
├── RegistryError         a graph could not be loaded
├── VectorsUnavailable    the store can't search by meaning in this database
├── PortTaken             something else listens where a server of ours should
├── DataFolderBusy        another stack runs on the same data folder
├── DataDamaged           a file of the data folder is not as it was left
└── ServerFailed          an embedded server did not start

The producers' errors are a tree of their own (`producers.errors`), as the thin
client has to work without this package. The CLI shows both in the same way.
"""

from typing import Any, ClassVar


class FleetError(Exception):
    """Root of the errors shown to people; `str()` gives what happened, then what to do.

    `data` carries what the sentence is about (a port, a path, a name) for machines.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", **data: Any) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class SettingsError(FleetError):
    """A setting is missing, unknown or not usable."""

    code = "settings"
    exit_code = 2


class PostgresUnavailable(FleetError):
    """Postgres refuses, is too old or does not answer."""

    code = "postgres_unavailable"


class BrokerUnavailable(FleetError):
    """The broker refuses or does not answer."""

    code = "broker_unavailable"


class MigrationsMissing(FleetError):
    """The database is older than this code."""

    code = "migrations_missing"


class DatabaseNewer(FleetError):
    """The database has changed in a way that this code can't work with."""

    code = "database_newer"


class OlderWorkers(FleetError):
    """Workers run that a migration would break; `data["workers"]` are their names."""

    code = "older_workers"


class PoolerRefused(FleetError):
    """A transaction pooler is in front of Postgres: session locks would not hold."""

    code = "pooler_refused"


class VectorsUnavailable(FleetError):
    """The store can't search by meaning in this database."""

    code = "vectors_unavailable"


class RegistryError(FleetError):
    """A graph named in the graphs file could not be loaded."""

    code = "registry"


class PortTaken(FleetError):
    """Something else listens on the port; `data["port"]` is its number."""

    code = "port_taken"

    def __init__(self, server: str, port: int) -> None:
        super().__init__(
            f"Port {port}, wanted for {server}, is taken by another program.",
            "Stop that program or choose another port.",
            server=server,
            port=port,
        )


class DataFolderBusy(FleetError):
    """Another stack runs on this data folder; `data["pid"]` is the process that owns it."""

    code = "data_folder_busy"

    def __init__(self, folder: object, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"The data folder {folder} is in use by {owner}.",
            "Stop that one first (Ctrl-C where it runs), or set FLEET_DATA_DIR to another folder.",
            folder=str(folder),
            pid=pid,
        )


class DataDamaged(FleetError):
    """A file of the data folder is not as it was left; nothing of the folder was changed."""

    code = "data_damaged"

    def __init__(self, path: object, what: str, hint: str) -> None:
        super().__init__(f"{path} is damaged: {what}.", hint, path=str(path))


class ServerFailed(FleetError):
    """An embedded server did not start; the hint names its log."""

    code = "server_failed"
