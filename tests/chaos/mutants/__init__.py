"""Workers with one of their safeguards taken out: `celery -A tests.chaos.mutants.NAME worker`.

Each module patches the product and then hands over its app. What is SQL is taken out of a
test's own database instead, see tests/chaos/test_mutants.py.
"""
