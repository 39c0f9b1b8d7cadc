"""The gateway and the worker's slot are those of tests/gateway."""

from tests.gateway.conftest import gateway, slot

__all__ = ["gateway", "slot"]
