"""The chat page."""

from fastapi import APIRouter

router = APIRouter()
