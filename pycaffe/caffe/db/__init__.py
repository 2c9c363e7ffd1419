"""Databases of records (serialised Datums): LMDB and LevelDB."""

from .base import DB as DB
from .base import Cursor as Cursor
from .base import Transaction as Transaction
from .open import detect_backend as detect_backend
from .open import open_db as open_db

__all__ = ["DB", "Cursor", "Transaction", "detect_backend", "open_db"]
