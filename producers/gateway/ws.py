"""WebSocket of chat pages."""

from fastapi import APIRouter

router = APIRouter()
