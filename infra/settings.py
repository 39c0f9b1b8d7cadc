"""Every setting, in one frozen object that is read once.

Sources, the first that has a value wins: environment variables `FLEET_…`, `.env`,
`fleet.toml` (names in small letters, without the prefix), and the addresses that a
running `fleet up` has left in its data folder. A name that is not known is an error
that says which one was meant, since a misspelt limit is worse than none.

A secret can stand in a file: `FLEET_POSTGRES_URL_FILE=/run/secrets/postgres_url` is the
setting FLEET_POSTGRES_URL with the file's text, less the white space around it. It goes
for every setting, in each of the sources.
"""

from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from redis import ConnectionPool

from infra import failpoints
from infra.datadir import default_data_dir
from infra.errors import SettingsError
from infra.live_settings import Count, LiveSettings, Seconds
from infra.setting_sources import PREFIX, Source, read_all, variable

#: How long something is kept; 0 is for ever.
Days = Annotated[float, Field(ge=0, allow_inf_nan=False)]


_REPLAYABLE = ("keep_messages_days", "keep_checkpoints_days")
_SHOWN = ("keep_questions_days", "keep_events_days")
_OUTLIVED = {
    "keep_effects_days": _REPLAYABLE,
    "keep_keyed_effects_days": ("keep_effects_days",),
    "keep_threads_days": (*_REPLAYABLE, *_SHOWN, "keep_effects_days"),
}


class Settings(LiveSettings, BaseSettings):
    """All settings; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    # Addresses hold passwords, so they stay out of repr().
    postgres_url: str | None = Field(None, repr=False)
    redis_url: str | None = Field(None, repr=False)
    shop_url: str | None = None
    graphs_file: Path = Path("langgraph.json")
    data_dir: Path | None = None
    #: Of producers and the command line; workers' sessions have limits of their own.
    client_timeout: Seconds = 15

    approval_limit: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)] = Decimal(1000)
    queue: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] = "fleet"

    turn_timeout: Seconds = 600
    #: What a node gets to return in once its turn was taken away.
    hung_grace: Seconds = 30
    give_up_after: Seconds = 86400
    max_crashes: Count = 3
    backoff_base: Seconds = 1.0
    backoff_max: Seconds = 300.0
    turns_per_task: Count = 20
    wakeups_per_slot: Count = 4

    sweep_interval: Seconds = 0.5
    election_interval: Seconds = 0.25
    redelivery_after: Seconds = 2.0
    flush_after: Seconds = 0.1
    pulse_interval: Seconds = 5.0

    log_format: Literal["auto", "json", "text"] = "auto"
    #: Names of fields, separated by commas, that logs hide besides the known ones.
    mask_fields: str = ""
    heartbeat_file: Path | None = None
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"

    # Of finished threads, and of nothing else: infra.retention.
    keep_history_days: Days = 30
    keep_checkpoints_days: Days = 90
    keep_messages_days: Days = 90
    keep_questions_days: Days = 90
    keep_events_days: Days = 30
    keep_effects_days: Annotated[Days, Field(validate_default=True)] = 90
    keep_keyed_effects_days: Annotated[Days, Field(validate_default=True)] = 0
    keep_threads_days: Annotated[Days, Field(validate_default=True)] = 0
    keep_rejected_wakeups_days: Days = 30
    prune_interval: Seconds = 3600

    failpoints: str = ""
    failpoint_log: Path | None = None
    failpoint_once: Path | None = None
    chaos_trial: Path | None = None

    @field_validator("postgres_url", "redis_url", "shop_url", "data_dir", mode="before")
    @classmethod
    def _blank_is_none(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("postgres_url")
    @classmethod
    def _postgres_usable(cls, value: str | None) -> str | None:
        # What the drivers say of an address repeats it, with the password.
        try:
            conninfo_to_dict(value or "")
        except psycopg.Error:
            raise ValueError("it is no postgresql://user:password@host:5432/database") from None
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_usable(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("starts with redis://, rediss:// or unix://")
        try:
            ConnectionPool.from_url(value).make_connection()
        except (ValueError, TypeError):
            raise ValueError(
                "it is no redis://:password@host:6379/0, or has an option that is not known"
            ) from None
        return value

    @field_validator("failpoints")
    @classmethod
    def _failpoints_readable(cls, value: str) -> str:
        # Whoever is started with it says so at once, not where the first one is met.
        failpoints.parse(value)
        return value

    @field_validator("shop_url")
    @classmethod
    def _http_scheme(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("starts with http:// or https://")
        return value

    @field_validator("keep_effects_days", "keep_keyed_effects_days", "keep_threads_days")
    @classmethod
    def _outlives(cls, value: float, info: ValidationInfo) -> float:
        """The ledger outlives what can be replayed, and a thread all that is its own."""
        for name in _OUTLIVED[str(info.field_name)]:
            other = info.data.get(name)
            if value and other is not None and (other == 0 or other > value):
                shown = f"{other:g}" if other else "for ever"
                raise ValueError(
                    f"it is shorter than {variable(name)} ({shown}), which it has to outlive; "
                    "0 is for ever"
                )
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            *(Source(settings_cls, values) for values in read_all(cls.model_fields)),
        )

    @property
    def data_folder(self) -> Path:
        """The data folder of `fleet up`: the one set, or the default for this directory."""
        return self.data_dir or default_data_dir(Path.cwd())

    @property
    def graphs_path(self) -> Path:
        """The graphs file; the one beside our packages where this directory has none."""
        if self.graphs_file.exists() or "graphs_file" in self.model_fields_set:
            return self.graphs_file
        return Path(__file__).resolve().parent.parent / self.graphs_file

    def require_postgres(self) -> str:
        """The Postgres URL, or SettingsError saying how to get one."""
        return self.postgres_url or _missing("Postgres", "FLEET_POSTGRES_URL")

    def require_redis(self) -> str:
        """The broker's URL, or SettingsError saying how to get one."""
        return self.redis_url or _missing("the broker", "FLEET_REDIS_URL")


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Read the settings once; `get_settings.cache_clear()` makes the next call read again.

    Raises SettingsError for an unknown name, a value that cannot be used, or a file
    that cannot be read.
    """
    try:
        return Settings()
    except ValidationError as exc:
        first = exc.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        name = variable(field) if field else "A setting"
        reason = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
        shown = f" {first['input']!r}" if _may_be_shown(field) else ""
        raise SettingsError(
            f"{name} has a value{shown} that cannot be used: {reason}.", f"Correct {name}."
        ) from None


def _may_be_shown(field: str) -> bool:
    """Addresses hold passwords, and keys are what they are."""
    known = Settings.model_fields.get(field)
    return known is not None and bool(known.repr) and not field.endswith("_url")


def _missing(what: str, variable: str) -> str:
    raise SettingsError(
        f"No address of {what} is set.", f"Run `fleet up` in this folder, or set {variable}."
    )
