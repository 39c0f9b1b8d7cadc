"""Chaos: attacks on graphs, the shipped one and a user's own, and what is said of them."""
