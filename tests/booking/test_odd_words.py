"""Odd words to the booking assistant: taken as they are meant, or asked about."""

from typing import Any

import pytest

from tests.booking.talk import WISH, Talk

ROOMS = {"en": "4 free", "zh": "4间空闲"}
#: What is said where a room is to be picked and where one is to be confirmed: what comes of it.
#: None: it is not understood, and asked again.
ODD: dict[str, dict[str, tuple[str | None, str | None]]] = {
    "en": {
        "the other one": ("What would you like to change", ROOMS["en"]),
        "the second one": ("Shall I book Orchid", "Shall I book Orchid"),
        "number two": ("Shall I book Orchid", "Shall I book Orchid"),
        "(2)": ("Shall I book Orchid", "Shall I book Orchid"),
        "no, the last": ("Shall I book Lotus", "Shall I book Lotus"),
        "option 9": (None, None),
        "pine or orchid": (None, None),
        "for 90 minutes": ("14:00–15:30", "14:00–15:30"),
        "from 3 to 4:30": ("15:00–16:30", "15:00–16:30"),
        "half an hour later": ("14:30–15:30", "14:30–15:30"),
        "for 13 hours": ("14:00–2030-06-05 03:00", "14:00–2030-06-05 03:00"),
        "not 8 but 10 people": ("For 10", "For 10"),
        "yes, but for ten people": ("For 10", "For 10"),
        "1001 people": ("No room holds 1001", "No room holds 1001"),
        "0 people": (None, None),
        "-3 people": (None, None),
        "NaN people": (None, None),
        "tomorrow at 25": (None, None),
        "🙂": (None, None),
        "x" * 5000: (None, None),
        "9" * 5000 + " hours": (None, None),
        "please don't cancel": ("we go on. For 8", "we go on. Shall I book Plum"),
        "forget about it": ("Nothing was booked", "Nothing was booked"),
        "yes 👍": (None, "Booked: Plum"),
    },
    "zh": {
        "换另外一个": ("您想改什么", ROOMS["zh"]),
        "选2": ("确认预订兰", "确认预订兰"),
        "二": ("确认预订兰", "确认预订兰"),
        "不要这个，要第二个": ("确认预订兰", "确认预订兰"),
        "第九个": (None, None),
        "松或者兰": (None, None),
        "九十分钟": ("14:00–15:30", "14:00–15:30"),
        "下周三上午十点半到十二点": ("6月12日（周三）10:30–12:00", "6月12日（周三）10:30–12:00"),
        "推迟一小时": ("15:00–16:00", "15:00–16:00"),
        "不是8个人，是10个人": ("10人，有", "10人，有"),
        "两万五千人": ("没有能容纳25000人", "没有能容纳25000人"),
        "零个人": (None, None),
        "负三个人": (None, None),
        "明天25点": (None, None),
        "🙂": (None, None),
        "啊" * 5000: (None, None),
        "先别取消，让我想想": ("我们继续。6月4日", "我们继续。确认预订梅"),
        "我不想订了": ("没有预订任何会议室", "没有预订任何会议室"),
        "没问题👌": (None, "已预订：梅"),
    },
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("phase", [0, 1])
def test_odd_words_are_taken_as_they_are_meant(talk: Talk, phase: int, language: str) -> None:
    """Or asked about; none is taken for something else, and none ends the turn."""
    unclear = {"en": "did not understand", "zh": "没有听懂"}[language]
    for n, (said, told) in enumerate(ODD[language].items()):
        one = Talk(talk.slot, talk.fleet, talk.database, f"odd{n}")
        one.say(WISH[language])
        if phase == 1:
            one.say("1")
        before = one.asked
        one.say(said)
        last = one.asked["message"] if one.questions() else one.texts("ai")[-1]
        expected = told[phase]
        assert (expected or unclear) in last, (said[:40], last)
        assert (unclear in last) == (expected is None), (said[:40], last)
        if expected is None:
            assert one.asked["data"] == before["data"]


@pytest.mark.parametrize("odd", ["qwerty", {"room_id": "R99"}, {"what": [1]}, None, 77, [], ""])
def test_an_answer_that_says_nothing_is_asked_for_again(talk: Talk, odd: Any) -> None:
    """The same question stays, in words that say so; nothing else changes."""
    talk.say(WISH["en"])
    before = talk.asked
    talk.answer(odd)
    assert talk.kind == "select_room" and talk.asked["data"] == before["data"]
    assert "did not understand" in talk.asked["message"]
    talk.say("1").answer(odd)
    assert talk.kind == "confirm" and talk.bookings() == []
