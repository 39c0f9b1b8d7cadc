"""Versions of channels: ours and the stock saver's go on from each other's."""

from langgraph.checkpoint.postgres import PostgresSaver

from workers.saver import FleetSaver


def ours(current: object) -> str:
    return FleetSaver.get_next_version(object.__new__(FleetSaver), current, None)


def stock(current: object) -> str:
    saver = object.__new__(PostgresSaver)
    return str(saver.get_next_version(current, None))  # type: ignore[arg-type]


def test_each_version_sorts_after_the_one_before() -> None:
    """From none, from a number, and whoever made the one before."""
    assert ours(None) < ours(9) < ours(99)
    current = ours(None)
    for make in (stock, ours, ours, stock, ours) * 4:
        following = make(current)
        assert following > current
        current = following
    assert int(current.partition(".")[0]) == 21


def test_two_versions_of_one_number_differ() -> None:
    """Two branches of a thread hold different values under them."""
    assert len({ours("3.0") for _ in range(100)}) == 100
