"""What must hold of the mailbox after each step of tests/chaos/machine.py, and at the end.

The model is a list of what was accepted and what was answered. The invariants read
Postgres and the provider's books; nothing here is told by the code that is tested.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.chaos.outside import provider
from tests.chaos.world import World

#: Messages that have ended, and what else a dead one may become if nobody retries it.
FINAL = {"done", "dropped", "cancelled"}
STAYS = {status: {status} for status in FINAL} | {"dead": {"dead", "dropped", "cancelled"}}
#: Mail may wait behind these, for a person.
HELD_UP = {"failed", "in_doubt"}


@dataclass
class Mail:
    """One message as it was sent: `send` sends it (again), with another payload if told so."""

    thread: str
    message_id: str
    kind: str
    tag: str | None
    send: Any
    question: str = ""
    seq: int = 0
    status: str = "pending"


@dataclass
class Model:
    """What has been promised so far."""

    mail: list[Mail] = field(default_factory=list)
    #: Question id: (thread, tag), as they were seen.
    questions: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Question id: the answer that was accepted.
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    count: int = 0
    #: A step has shown a fault: how things end says nothing more.
    wrong: bool = False

    def new(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    def of(self, thread: str) -> list[Mail]:
        return [mail for mail in self.mail if mail.thread == thread]

    def threads(self) -> list[str]:
        return sorted({mail.thread for mail in self.mail})


class Promises(RuleBasedStateMachine):
    """`world` is set by who runs it, `model` by the machine's first step."""

    world: World
    model: Model

    # What holds at any time

    @invariant()
    def accepted_is_kept_in_order(self) -> None:
        """Each message once, numbered as accepted; what has ended has ended for good; a later
        one is not done before an earlier one has ended."""
        found = self.world.rows("SELECT thread_id, seq, message_id, status FROM fleet.messages")
        rows = {(thread, message): (seq, status) for thread, seq, message, status in found}
        mail = {(m.thread, m.message_id): m for m in self.model.mail}
        assert rows.keys() == mail.keys(), rows.keys() ^ mail.keys()
        for name, (seq, status) in rows.items():
            assert mail[name].seq == seq, f"{name} has moved to {seq}"
            was = mail[name].status
            assert status in STAYS.get(was, {status}), f"{name} was {was} and is {status}"
            mail[name].status = status
        for thread in self.model.threads():
            before = True
            for one in sorted(self.model.of(thread), key=lambda m: m.seq):
                assert before or one.status != "done" or one.kind == "resolve", self._told(thread)
                before = before and one.status in FINAL

    @invariant()
    def effects_happen_once(self) -> None:
        """By the provider's own books, and with the answer that was given to that question."""
        assert all(times == 1 for times in provider.acts.values()), provider.acts
        given = {self.model.questions[q][1]: a for q, a in self.model.answers.items()}
        for tag, value in provider.shipped.items():
            assert tag in given and given[tag]["ship"], f"{tag} was shipped without being asked for"
            assert value == given[tag]["value"], f"{tag} was shipped by another answer"

    @invariant()
    def checkpoints_form_one_chain(self) -> None:
        forks = self.world.rows(
            """SELECT thread_id, parent_checkpoint_id, count(*) FROM checkpoints
               GROUP BY thread_id, checkpoint_ns, parent_checkpoint_id HAVING count(*) > 1"""
        )
        assert not forks, f"several checkpoints follow one: {forks}"

    @invariant()
    def questions_are_what_was_asked(self) -> None:
        """One for each tag; the answer on record is the one that was accepted."""
        found = self.world.rows(
            "SELECT question_id, thread_id, payload->>'tag', status, answer FROM fleet.questions"
        )
        for question, thread, tag, status, answer in found:
            self.model.questions[question] = (thread, tag)
            if status == "answered":
                assert answer == self.model.answers.get(question), f"{question}: {answer}"
        tags = [tag for _, tag in self.model.questions.values()]
        assert len(tags) == len(set(tags)), self.model.questions

    def teardown(self) -> None:
        if hasattr(self, "model") and not self.model.wrong:
            self.everything_ends_or_waits_visibly()

    def everything_ends_or_waits_visibly(self) -> None:
        """With the outside up again and nothing going wrong any more."""
        provider.troubles.clear()
        for _ in range(20):
            self.world.move_clock(0.2)
            self.world.new_leader()
            self.world.sweep()
            for thread in self.world.wakes():
                self.world.work(0, thread)
            if not self.world.rows(
                """SELECT FROM fleet.threads t JOIN fleet.messages m USING (thread_id)
                   WHERE m.status IN ('pending', 'claimed') AND t.status <> ALL(%s)""",
                [*HELD_UP],
            ):
                break
        else:
            raise AssertionError([self._told(thread) for thread in self.model.threads()])
        for check in (
            self.accepted_is_kept_in_order,
            self.effects_happen_once,
            self.checkpoints_form_one_chain,
            self.questions_are_what_was_asked,
        ):
            check()
        for thread in self.model.threads():
            self._did_what_was_asked(thread)

    def _did_what_was_asked(self, thread: str) -> None:
        """Every message that is done has had its effect and stands in the state, in order."""
        ((generation, status),) = self.world.rows(
            "SELECT generation, status FROM fleet.threads WHERE thread_id = %s", thread
        )
        assert status != "idle" and status != "running", self._told(thread)
        done = [m for m in self.model.of(thread) if m.status == "done" and m.tag]
        for mail in done:
            assert provider.acts["pay", str(mail.tag)] == 1, f"{mail.tag} was never paid for"
        log = self.world.log_of(thread, generation)
        assert len(log) == len(set(log)), log
        begun = self._generation_began(thread)
        expected = [f"paid {m.tag}" for m in sorted(done, key=lambda m: m.seq) if m.seq >= begun]
        assert [entry for entry in log if entry in expected] == expected, (log, expected)
        self._did_what_was_answered(thread, log, begun)

    def _did_what_was_answered(self, thread: str, log: list[str], begun: int) -> None:
        for mail in self.model.of(thread):
            if mail.kind != "answer" or mail.status != "done":
                continue
            _, tag = self.model.questions[mail.question]
            answer = self.model.answers[mail.question]
            assert provider.acts["ship", tag] == answer["ship"], f"{tag}: {answer}"
            if mail.seq > begun:
                entry = f"{'shipped' if answer['ship'] else 'kept'} {tag} {answer['value']}"
                assert entry in log, (entry, log)

    def _generation_began(self, thread: str) -> int:
        """The message that the present generation began with."""
        ((seq,),) = self.world.rows(
            """SELECT coalesce(max(seq), 0) FROM fleet.messages
               WHERE thread_id = %s AND kind = 'start' AND claimed_epoch IS NOT NULL""",
            thread,
        )
        return int(seq)

    def _told(self, thread: str) -> str:
        status = self.world.rows("SELECT status FROM fleet.threads WHERE thread_id = %s", thread)
        mail = [(m.seq, m.message_id, m.kind, m.status) for m in self.model.of(thread)]
        return f"{thread} {status}: {mail}"
