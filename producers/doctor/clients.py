"""Which libraries speak to the outside, and which of their calls change something there.

Knowledge in tables, no more: a call that is in doubt counts as one that changes something,
since a node that runs again makes it again.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from typing import Any, Literal

#: neutral: makes or ends what others use, or asks an answer for its content.
Meaning = Literal["neutral", "reads", "changes"]

#: Modules by prefix, with what they speak to.
CLIENTS = {
    "HTTP": (
        "httpx", "requests", "aiohttp", "urllib3", "urllib.request", "http.client", "pycurl",
        "httplib2", "niquests", "websockets", "grpc", "zeep", "suds",
    ),
    "database": (
        "psycopg", "psycopg2", "psycopg_pool", "asyncpg", "pg8000", "sqlalchemy", "sqlmodel",
        "peewee", "tortoise", "django.db", "pymysql", "MySQLdb", "mysql.connector", "aiomysql",
        "sqlite3", "aiosqlite", "oracledb", "cx_Oracle", "pyodbc", "pymongo", "motor", "redis",
        "valkey", "cassandra", "elasticsearch", "opensearchpy", "neo4j", "clickhouse_connect",
        "snowflake.connector",
    ),
    "mail": (
        "smtplib", "aiosmtplib", "sendgrid", "mailjet_rest", "postmarker", "resend", "yagmail",
        "django.core.mail", "imaplib",
    ),
    "service": (
        "stripe", "braintree", "paypalrestsdk", "adyen", "boto3", "botocore", "aioboto3",
        "google.cloud", "azure", "twilio", "slack_sdk", "kafka", "confluent_kafka", "aiokafka",
        "pika", "aio_pika", "nats", "celery", "kombu", "paramiko", "fabric", "hvac", "github",
        "gitlab", "jira", "hubspot", "simple_salesforce",
    ),
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Calls that only make or end what others then use, or that ask an answer for its content.
_NEUTRAL = _words(
    """abort acquire aenter aclose begin begin_nested build_request close commit connect cursor
    disconnect ehlo encode enter_context flush getresponse helo info json login mount pipeline
    quit raise_for_status release rollback set_debuglevel set_tunnel starttls terminate text
    transaction"""
)
#: Functions, not classes, that make a client.
_FACTORIES = _words(
    """acquire begin begin_nested client connect connection create_async_engine create_client
    create_engine create_pool cursor from_env from_url get_client get_connection pipeline
    pool_from_url resource session sessionmaker transaction"""
)
_READING = re.compile(
    r"(get|head|options|fetch(one|many|all|row|val)?|read|find|list|describe|search|scan|exists|count|ping|keys|info|"
    r"[hmz]get|hkeys|hvals|hgetall|lrange|llen|zrange|zscore|scard|smembers|sismember|ttl|type|"
    r"select|scalars?|query|aggregate|retrieve|lookup|download|poll|subscribe|receive|"
    r"iter|one|first|all)(_.*|[A-Z].*)?\Z"
)
#: Names that change something wherever a client is at hand; for a receiver that is unknown.
TELLING = _words(
    """post put patch delete sendmail send_message send_email execute executemany executescript
    insert_one insert_many update_one update_many delete_one delete_many publish put_object
    put_item send_task apply_async"""
)
_SQL = ("execute", "executemany", "exec_driver_sql", "exec", "fetch", "fetchrow", "fetchval")
_SQL_READS = re.compile(r"\s*(select|show|explain|values|table)\b", re.IGNORECASE)


def kind_of(module: str | None) -> str | None:
    """What the module speaks to; None for one that is not known to."""
    for kind, names in CLIENTS.items():
        if any(module == name or str(module).startswith(f"{name}.") for name in names):
            return kind
    return None


def library_of(value: Any) -> str | None:
    """The client library that a module, class, function or instance belongs to."""
    if inspect.ismodule(value):
        name: str | None = value.__name__
    elif isinstance(value, type) or inspect.isroutine(value):
        name = getattr(value, "__module__", None)
    else:
        name = type(value).__module__
    if kind_of(name) is None:
        return None
    root = str(name).split(".")
    return ".".join(root[:2]) if root[0] in ("urllib", "http", "google", "django") else root[0]


def makes_client(name: str, value: Any) -> bool:
    """Whether calling it gives something to call on."""
    return isinstance(value, type) or name in _FACTORIES


def meaning(name: str, call: ast.Call) -> Meaning:
    """What a call of this name on a client does; where in doubt, it changes something."""
    first = _text(call.args)
    if name in ("request", "stream", "Request"):
        reads = (first or "").upper() in ("GET", "HEAD", "OPTIONS")
    elif name in ("urlopen", "urlretrieve"):
        reads = not (len(call.args) > 1 or _keyword(call, "data") or _sends(call.args))
    elif name in _SQL:
        reads = first is not None and _SQL_READS.match(first) is not None
    elif name in _NEUTRAL or name in _FACTORIES:
        return "neutral"
    else:
        reads = _READING.match(name) is not None
    return "reads" if reads else "changes"


def _text(args: Sequence[ast.expr]) -> str | None:
    """The first argument where it is a text in the code, as such or in text("…")."""
    if not args:
        return None
    first = args[0]
    if isinstance(first, ast.Call):
        made_by = first.func
        if isinstance(made_by, ast.Name) and made_by.id == "select":
            return "select"
        return _text(first.args)
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def _keyword(call: ast.Call, *names: str) -> bool:
    return any(keyword.arg in names for keyword in call.keywords)


def _sends(args: Sequence[ast.expr]) -> bool:
    return any(isinstance(a, ast.Call) and _keyword(a, "data", "method") for a in args)
