"""The meeting-room assistant: a person says what they need, picks a room, confirms, has it.

`graph` is the loop (plan → act → observe), `rules` and `model` are its two planners.
"""
