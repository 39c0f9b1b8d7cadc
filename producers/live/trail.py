"""What of a turn has been shown and is not known to be durable: void if its claim is lost."""

from collections.abc import Set
from dataclasses import dataclass, field

from .events import Event
from .ids import EventId

_MOST = 2000


@dataclass(slots=True)
class Trail:
    """unsure: something may have been shown before the trail began."""

    unsure: bool = False
    _loose: set[EventId] = field(default_factory=set)
    _texts: set[str] = field(default_factory=set)

    def note(self, event: Event) -> None:
        """It is shown next."""
        if event.settles or event.type == "turn":
            self.clear()
        elif event.type == "token":
            self._texts.add(event.data.get("message_id", ""))
        else:
            if event.type == "message":
                self._texts -= event.texts
            self._loose.add(event.id)
            self.unsure = self.unsure or len(self._loose) > _MOST
        if self.unsure:
            self._loose.clear()
            self._texts.clear()

    def clear(self, *, unsure: bool = False) -> None:
        self.unsure = unsure
        self._loose.clear()
        self._texts.clear()

    @property
    def doubted(self) -> Set[EventId]:
        """Events that are void if they are not durable."""
        return self._loose

    @property
    def broken(self) -> bool:
        """Whether something shown is void for certain, once the claim is lost."""
        return self.unsure or bool(self._texts)
