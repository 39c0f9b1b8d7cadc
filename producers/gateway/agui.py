"""AG-UI: run, resume, events."""

from fastapi import APIRouter

router = APIRouter()
