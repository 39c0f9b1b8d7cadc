"""REST for services."""

from fastapi import APIRouter

router = APIRouter()
