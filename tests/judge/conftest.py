"""Cases are made once: the tests of this room ask about more of them than the library keeps."""

from __future__ import annotations

from functools import lru_cache

from tl_dyck.judge import cases

cases._make_once = lru_cache(maxsize=None)(cases._make_once.__wrapped__)
