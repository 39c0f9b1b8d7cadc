"""The modules of the thin wheel on their own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT, Database, clean_environment


@pytest.mark.parametrize("in_file", [False, True])
def test_the_thin_client_needs_none_of_ours(
    in_file: bool, database: Database, tmp_path: Path
) -> None:
    """Its modules, under another package name, work where Celery, LangGraph and we are absent;
    with the address in the environment, or in the file that it names."""
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
    (tmp_path / "url").write_text(f"{database.url}\n")
    given = {"postgres_url_file": tmp_path / "url"} if in_file else {"postgres_url": database.url}
    environment = clean_environment(**given) | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["accepted", "idle", "conflict"], "")
