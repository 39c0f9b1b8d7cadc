"""A state machine that does to the mailbox, in any order, whatever can be done to it.

hypothesis picks the steps and, when something does not hold, finds the shortest run of
them that shows it. What must hold is in tests/chaos/promises.py.
"""

from contextlib import suppress
from typing import Any, NoReturn

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from producers.errors import AnswerRefused, MessageConflict, ProducerError, QuestionOpen
from tests.chaos.outside import GRAPHS, provider
from tests.chaos.promises import Mail, Model, Promises
from tests.chaos.world import DOOR_POINTS, FATES, TURN_POINTS, Killed

graphs = st.sampled_from(GRAPHS)
keys = st.sampled_from("AB")
slots = st.sampled_from([0, 1])
picks = st.integers(0, 1000)
#: Mostly nothing goes wrong, or nothing would ever get far.
mishaps = st.one_of(
    st.just(("", "")), st.tuples(st.sampled_from(TURN_POINTS), st.sampled_from(FATES))
)
door_mishaps = st.one_of(st.just(""), st.just(""), st.sampled_from(DOOR_POINTS))


class Mailbox(Promises):
    """See the module; `world` is set by who runs it."""

    @initialize()
    def begin(self) -> None:
        self.world.begin_anew()
        self.model = Model()
        self.fleet = self.world.fleet

    # Producers

    @rule(
        graph=graphs,
        key=keys,
        ask=st.booleans(),
        restart=st.booleans(),
        priority=st.integers(-1, 1),
        mishap=door_mishaps,
    )
    def submit(
        self, graph: str, key: str, ask: bool, restart: bool, priority: int, mishap: str
    ) -> None:
        thread, tag, message = f"{graph}:{key}", self.model.new("t"), self.model.new("m")
        known = bool(self.model.of(thread))

        def send(other: bool = False) -> Any:
            return self.fleet.submit(
                graph,
                key,
                {"tag": tag, "ask": ask != other},
                message_id=message,
                on_existing="restart" if restart else "use_existing",
                priority=priority,
            )

        if restart and known and self._in_doubt(thread):
            # Whether that is refused is not what is looked at here.
            return
        mail = Mail(thread, message, "start", tag, send)
        self._accept(mail, mishap, "accepted" if restart or not known else "existing")

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks, ask=st.booleans(), mishap=door_mishaps)
    def more_input(self, pick: int, ask: bool, mishap: str) -> None:
        thread = self._thread(pick)
        tag, message = self.model.new("t"), self.model.new("m")

        def send(other: bool = False) -> Any:
            return self.fleet.send(thread, {"tag": tag, "ask": ask != other}, message_id=message)

        if self._open(thread):
            try:
                send()
            except QuestionOpen:
                return
            self._wrong("input was taken while a question was open")
        self._accept(Mail(thread, message, "input", tag, send), mishap, "accepted")

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks)
    def send_again(self, pick: int) -> None:
        """The same id with the same payload: the same receipt."""
        mail = self.model.mail[pick % len(self.model.mail)]
        receipt = mail.send()
        assert (receipt.outcome, receipt.seq) == ("duplicate", mail.seq)

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks)
    def send_another_payload(self, pick: int) -> None:
        """The same id with another payload: a conflict, and nothing is overwritten."""
        mail = self.model.mail[pick % len(self.model.mail)]
        try:
            receipt = mail.send(other=True)
        except MessageConflict:
            return
        self._wrong(f"{mail.message_id} has another payload now: {receipt.outcome}")

    # People

    @precondition(lambda self: self.model.questions)
    @rule(pick=picks, ship=st.booleans(), mishap=door_mishaps)
    def answer(self, pick: int, ship: bool, mishap: str) -> None:
        """The open question, one answered before, or one that a restart has taken away."""
        # By tag: their ids are others in each run.
        questions = sorted(self.model.questions, key=lambda q: self.model.questions[q][1])
        question = questions[pick % len(questions)]
        thread, _ = self.model.questions[question]
        value, message = {"ship": ship, "value": self.model.new("v")}, self.model.new("m")

        def send(other: bool = False) -> Any:
            given = {**value, "value": "other"} if other else value
            return self.fleet.answer(thread, question, given, message_id=message)

        fits = question not in self.model.answers and self._answerable(thread, question)
        if not fits:
            try:
                send()
            except AnswerRefused:
                return
            self._wrong(f"{question} was answered: it was not open, or not any more")
        self._accept(Mail(thread, message, "answer", None, send, question), mishap, "accepted")
        if self.model.mail[-1].message_id == message:
            self.model.answers[question] = value

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        done = self.fleet.cancel(self._thread(pick))
        assert done.outcome in ("cancelled", "finished")

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks, new_request=st.booleans())
    def retry(self, pick: int, new_request: bool) -> None:
        thread = self._thread(pick)
        try:
            retried = self.fleet.retry(thread, new_request=new_request)
        except ProducerError:
            return
        for mail in self.model.of(thread):
            if mail.seq == retried.seq:
                mail.status = "pending"

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        with suppress(ProducerError):
            self.fleet.drop(self._thread(pick))

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks)
    def resolve(self, pick: int) -> None:
        """A person has asked the provider what became of a parked effect."""
        self._resolve(self._thread(pick))

    # Workers

    @rule(slot=slots, mishap=mishaps)
    def deliver(self, slot: int, mishap: tuple[str, str]) -> None:
        """The wake-ups in the queue; something may happen during the first."""
        for thread in self.world.wakes():
            self.world.work(slot, thread, *mishap)
            mishap = ("", "")

    @precondition(lambda self: self.model.mail)
    @rule(pick=picks, slot=slots, mishap=mishaps)
    def deliver_again(self, pick: int, slot: int, mishap: tuple[str, str]) -> None:
        """A wake-up that comes twice, or late."""
        self.world.work(slot, self._thread(pick), *mishap)

    @rule()
    def wipe_the_broker(self) -> None:
        self.world.wakes()

    @rule(hours=st.sampled_from([0.0, 0.01, 0.2]))
    def sweep(self, hours: float) -> None:
        self.world.move_clock(hours)
        self.world.sweep()

    @rule(kind=st.sampled_from(["down", "lost", "refuse"]))
    def trouble_the_provider(self, kind: str) -> None:
        provider.troubles.append(kind)

    # Inside

    def _accept(self, mail: Mail, mishap: str, outcome: str) -> None:
        """Send it; one whose sender dies on the way is accepted or not, by when it died."""
        died = False

        def die() -> None:
            nonlocal died
            died = True
            raise Killed

        try:
            if mishap:
                with self.world.befall(mishap, die):
                    receipt = mail.send()
            else:
                receipt = mail.send()
        except Killed:
            if mishap != "accept.before_commit" and outcome == "accepted":
                self._note(mail)
            return
        assert receipt.outcome == outcome, (receipt, outcome)
        if outcome == "accepted":
            self._note(mail)
            assert receipt.seq == mail.seq

    def _wrong(self, what: str) -> NoReturn:
        self.model.wrong = True
        raise AssertionError(what)

    def _note(self, mail: Mail) -> None:
        mail.seq = 1 + len(self.model.of(mail.thread))
        self.model.mail.append(mail)

    def _resolve(self, thread: str) -> None:
        doubts = self.world.rows(
            """SELECT request_id FROM fleet.effects e JOIN fleet.threads t USING (thread_id)
               WHERE thread_id = %s AND t.status = 'in_doubt' AND e.state = 'intent'
                 AND e.generation = t.generation""",
            thread,
        )
        waiting = [m for m in self.model.of(thread) if m.kind == "resolve"]
        if not doubts or any(m.status in ("pending", "claimed") for m in waiting):
            return
        request, message = doubts[0][0], self.model.new("m")
        tag = provider.tags.get(request)
        happened = provider.acts["pay", str(tag)] > 0

        def send(other: bool = False) -> Any:
            result = {"tag": tag} if happened else None
            return self.fleet.resolve(
                thread, request, happened != other, result, message_id=message
            )

        self._accept(Mail(thread, message, "resolve", None, send), "", "accepted")

    def _thread(self, pick: int) -> str:
        threads = self.model.threads()
        return threads[pick % len(threads)]

    def _in_doubt(self, thread: str) -> bool:
        return bool(
            self.world.rows(
                "SELECT FROM fleet.effects WHERE thread_id = %s AND state = 'intent'", thread
            )
        )

    def _open(self, thread: str) -> bool:
        return bool(
            self.world.rows(
                "SELECT FROM fleet.questions WHERE thread_id = %s AND status = 'open'", thread
            )
        )

    def _answerable(self, thread: str, question: str) -> bool:
        return bool(
            self.world.rows(
                """SELECT FROM fleet.questions q JOIN fleet.threads t USING (thread_id)
                   WHERE thread_id = %s AND question_id = %s AND q.status = 'open'
                     AND NOT t.cancel_requested AND NOT EXISTS (
                        SELECT FROM fleet.messages m WHERE m.thread_id = t.thread_id
                          AND m.status = 'pending' AND m.restarts)""",
                thread,
                question,
            )
        )
