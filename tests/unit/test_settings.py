"""Settings: where they come from, and what a mistake in them says."""

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from infra.errors import FleetError, SettingsError
from infra.settings import Settings, get_settings


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No FLEET_ variables, an empty folder, nothing cached."""
    for name in [n for n in os.environ if n.startswith("FLEET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FLEET_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_defaults_are_those_of_the_design() -> None:
    """Without any source the documented defaults hold."""
    settings = get_settings()
    assert settings.approval_limit == Decimal(1000)
    assert (settings.max_crashes, settings.turns_per_task, settings.wakeups_per_slot) == (3, 20, 4)
    assert (settings.turn_timeout, settings.give_up_after) == (600, 86400)
    assert settings.postgres_url is None


def test_the_environment_wins_over_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Environment, .env, fleet.toml and the stack file, in this order."""
    (tmp_path / "data").mkdir()
    stack = ['postgres_url = "postgresql://stack"', 'redis_url = "redis://stack"']
    (tmp_path / "data" / "stack.toml").write_text("\n".join(stack))
    (tmp_path / "fleet.toml").write_text('redis_url = "redis://toml"\nmax_crashes = 5\nqueue = "t"')
    (tmp_path / ".env").write_text("FLEET_MAX_CRASHES=6\nFLEET_QUEUE=dotenv\nOTHER=1\n")
    monkeypatch.setenv("FLEET_QUEUE", "environment")
    settings = get_settings()
    assert settings.postgres_url == "postgresql://stack"
    assert settings.redis_url == "redis://toml"
    assert settings.max_crashes == 6
    assert settings.queue == "environment"


def test_the_data_dir_of_a_file_says_where_the_stack_file_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """data_dir in fleet.toml is used to find stack.toml."""
    monkeypatch.delenv("FLEET_DATA_DIR")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "stack.toml").write_text('postgres_url = "postgresql://here"')
    (tmp_path / "fleet.toml").write_text('data_dir = "elsewhere"')
    assert get_settings().postgres_url == "postgresql://here"


def test_a_misspelt_variable_says_which_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLEET_TURN_TIMOUT is refused and FLEET_TURN_TIMEOUT proposed."""
    monkeypatch.setenv("FLEET_TURN_TIMOUT", "5")
    with pytest.raises(SettingsError, match=r"FLEET_TURN_TIMOUT.*Did you mean FLEET_TURN_TIMEOUT"):
        get_settings()


@pytest.mark.parametrize("file", ["fleet.toml", ".env"])
def test_a_misspelt_name_in_a_file_is_refused(file: str, tmp_path: Path) -> None:
    """Files are as strict as the environment, and named."""
    text = "max_crash = 4" if file == "fleet.toml" else "FLEET_MAX_CRASH=4"
    (tmp_path / file).write_text(text)
    with pytest.raises(SettingsError) as caught:
        get_settings()
    assert file in str(caught.value)
    assert "max_crashes" in str(caught.value).lower()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLEET_MAX_CRASHES", "many"),
        ("FLEET_MAX_CRASHES", "0"),
        ("FLEET_TURN_TIMEOUT", "-1"),
        ("FLEET_TURN_TIMEOUT", "inf"),
        ("FLEET_APPROVAL_LIMIT", "NaN"),
        ("FLEET_QUEUE", ""),
        ("FLEET_REDIS_URL", "localhost:6379"),
        ("FLEET_SHOP_URL", "ftp://shop"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the variable's name and what to do; usage exit code."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        get_settings()
    assert caught.value.message.startswith(name)
    assert caught.value.hint == f"Correct {name}."
    assert caught.value.exit_code == 2


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """TOML that does not parse is an error about that file."""
    (tmp_path / "fleet.toml").write_text("queue = ")
    with pytest.raises(SettingsError, match=r"fleet\.toml cannot be read"):
        get_settings()


def test_a_secret_can_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """FLEET_X_FILE is FLEET_X with the file's text, without the line's end."""
    (tmp_path / "url").write_text("postgresql://u:secret@h/d\n")
    monkeypatch.setenv("FLEET_POSTGRES_URL", "")
    monkeypatch.setenv("FLEET_POSTGRES_URL_FILE", str(tmp_path / "url"))
    (tmp_path / "redis").write_text("redis://r")
    (tmp_path / "fleet.toml").write_text('redis_url_file = "redis"')
    assert get_settings().postgres_url == "postgresql://u:secret@h/d"
    assert get_settings().redis_url == "redis://r"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_secret_that_cannot_be_read_names_variable_and_file(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the error says what to do."""
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    monkeypatch.setenv("FLEET_POSTGRES_URL_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match=r"url of FLEET_POSTGRES_URL_FILE cannot be read"):
        get_settings()


def test_a_secret_given_twice_must_be_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which of two different ones is meant, nobody can know."""
    (tmp_path / "url").write_text("postgresql://one\n")
    monkeypatch.setenv("FLEET_POSTGRES_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("FLEET_POSTGRES_URL", "postgresql://one")
    assert get_settings().postgres_url == "postgresql://one"
    get_settings.cache_clear()
    monkeypatch.setenv("FLEET_POSTGRES_URL", "postgresql://two")
    with pytest.raises(SettingsError, match="different things") as caught:
        get_settings()
    assert "one" not in str(caught.value).replace("one of them", "")


def test_a_file_of_no_setting_is_a_misspelt_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLEET_POSTGRES_ULR_FILE is refused as any other name."""
    monkeypatch.setenv("FLEET_POSTGRES_ULR_FILE", "/run/secrets/url")
    with pytest.raises(SettingsError, match="is not a setting"):
        get_settings()


def test_a_file_in_the_data_dir_s_place_holds_no_stack_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is no error of the stack file's; what uses the folder says so itself."""
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("FLEET_DATA_DIR", str(tmp_path / "taken"))
    assert get_settings().postgres_url is None


def test_a_blank_address_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass empty variables on."""
    monkeypatch.setenv("FLEET_POSTGRES_URL", " ")
    assert get_settings().postgres_url is None


def test_a_missing_address_says_how_to_get_one() -> None:
    """require_* name both ways."""
    with pytest.raises(SettingsError, match=r"fleet up.*FLEET_POSTGRES_URL"):
        get_settings().require_postgres()
    with pytest.raises(SettingsError, match=r"fleet up.*FLEET_REDIS_URL"):
        get_settings().require_redis()


def test_addresses_stay_out_of_repr() -> None:
    """They hold passwords."""
    assert "secret" not in repr(Settings(postgres_url="postgresql://u:secret@h/d"))


def test_settings_are_frozen() -> None:
    """Read once, the same for everybody."""
    with pytest.raises(ValidationError):
        get_settings().queue = "other"  # type: ignore[misc]


def test_the_graphs_file_beside_the_packages_is_the_fallback() -> None:
    """A folder without langgraph.json gets the shipped graphs."""
    assert (get_settings().graphs_path.parent / "infra" / "settings.py").exists()


def test_every_error_for_people_has_a_code_of_its_own() -> None:
    """Machines tell the errors apart by their code."""
    kinds = FleetError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds) >= 9
    assert str(FleetError("It broke.", "Mend it.")) == "It broke. Mend it."


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("FLEET_POSTGRES_URL", "postgresql+psycopg://u:secret@h/x"),
        ("FLEET_POSTGRES_URL", "mysql://u:secret@h/x"),
        ("FLEET_POSTGRES_URL", "postgresql://u:sec%zzret@h/x"),
        ("FLEET_POSTGRES_URL", "'postgresql://u:secret@h/x'"),
        ("FLEET_REDIS_URL", "redis://:secret/pw@h"),
        ("FLEET_REDIS_URL", "redis://:secret@127.0.0.1:1/0?foo=bar"),
        ("FLEET_REDIS_URL", "http://:secret@h"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the drivers say of it would repeat it."""
    monkeypatch.setenv(name, url)
    with pytest.raises(SettingsError, match=name) as caught:
        get_settings()
    assert "sec" not in f"{caught.value}{caught.value.__cause__ or ''}"


def test_a_blank_data_folder_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the present directory."""
    monkeypatch.delenv("FLEET_DATA_DIR")
    default = get_settings().data_folder
    get_settings.cache_clear()
    monkeypatch.setenv("FLEET_DATA_DIR", "")
    assert get_settings().data_folder == default
