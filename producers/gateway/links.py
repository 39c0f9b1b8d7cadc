"""One-time links that answer a question."""

from fastapi import APIRouter

router = APIRouter()
