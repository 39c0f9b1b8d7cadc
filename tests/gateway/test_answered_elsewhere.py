"""G8: a question that is open on a page and behind a link is answered by the command line."""

from pathlib import Path

import httpx
import pytest

from producers.cli import main
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.gateway.test_links import link_to
from tests.harness import Database, registered_graphs
from workers.drain import drain
from workers.slot import Slot


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return registered_graphs(tmp_path, database, {"talk": "chatter.py:graph"})


def test_an_answer_by_the_command_line_is_the_same_answer(
    gateway: Gateway,
    client: httpx.Client,
    slot: Slot,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The open tab is told what became of it; the tab, the link and a second command that answer
    after it are told that it was answered, and by whom; one answer is in the mailbox."""
    with Page(gateway) as tab:
        thread = tab.until("welcome")["thread_id"]
        tab.say("choose Which room?")
        drain(slot, thread)
        question = tab.until("interrupt")["question_id"]
        link = link_to(database, question, thread)
        assert client.get(link).status_code == 200
        command = ["answer", thread, "--question", question, "--by", "ann", "--value", '"r2"']
        assert main(command) == 0
        tab.send("answer", question_id=question, value="r1", message_id="late")
        error = tab.until("ack", "error")
        assert (error["code"], error["reason"]) == ("answer_refused", "already_answered")
        page = client.get(link)
        assert (page.status_code, "by ann" in page.text) == (410, True)
        late = client.post(link, data={"choice": "0"})
        assert (late.status_code, "by ann" in late.text) == (409, True)
        command[-1] = '"r1"'
        capsys.readouterr()
        assert main([*command, "--json"]) != 0
        assert "already_answered" in capsys.readouterr().err
        drain(slot, thread)
        assert tab.until("complete")["message"] == "You chose r2"
    assert database.value("SELECT count(*) FROM fleet.messages WHERE kind = 'answer'") == 1
