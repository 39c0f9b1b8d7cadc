"""The workers: Celery processes that claim threads and drive their graphs.

``celery -A workers worker`` finds the application here.
"""

from workers.app import app as celery

__all__ = ["celery"]
