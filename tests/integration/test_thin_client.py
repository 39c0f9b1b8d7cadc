"""The modules of the thin wheel on their own."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness import ROOT, Database, clean_environment


def test_the_thin_client_needs_none_of_ours(database: Database, tmp_path: Path) -> None:
    """Its modules, under another package name, work where Celery, LangGraph and we are absent."""
    package = tmp_path / "threadfleet_client"
    package.mkdir()
    for file in (ROOT / "producers").iterdir():
        if file.suffix in (".py", ".sql"):
            shutil.copy(file, package)
    code = """
import sys
for name in ("celery", "kombu", "langgraph", "langchain_core", "infra", "graphs", "workers",
             "producers", "pydantic_settings", "typer"):
    sys.modules[name] = None
from threadfleet_client import Fleet, MessageConflict
with Fleet() as fleet:
    receipt = fleet.submit("refund", "A1", {"user_id": "u"}, message_id="m")
    print(receipt.outcome, fleet.status(receipt.thread_id).status)
    try:
        fleet.submit("refund", "A1", {"user_id": "v"}, message_id="m")
    except MessageConflict:
        print("conflict")
"""
    environment = clean_environment(postgres_url=database.url) | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["accepted", "idle", "conflict"], "")
