"""Graphs: what nodes call (effects), what people are asked (questions), what is registered."""
