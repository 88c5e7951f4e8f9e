"""What installed packages announce to be plugged in, read once.

Knows: when what is installed may have changed.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib import metadata
from typing import Any

__all__ = ["announced"]


def announced(**asked: str) -> Any:
    """Entry points, all or those of a group and name; see `importlib.metadata.entry_points`.

    Python reads the files of all packages at every call, which takes some milliseconds. Here they
    are read again only if a folder of the path has changed: installing a package changes one.
    """
    places = []
    for place in sys.path:
        try:
            # "": the current folder
            places.append((place, os.stat(place or ".").st_mtime_ns))
        except OSError:  # a path may name what is not there
            continue
    return _chosen(tuple(places), **asked)


@lru_cache(maxsize=1024)  # more than there are names: to choose is to look at all of them
def _chosen(places: tuple[tuple[str, int], ...], **asked: str) -> Any:
    return _read(places).select(**asked)


@lru_cache(maxsize=1)  # the path changes seldom
def _read(places: tuple[tuple[str, int], ...]) -> Any:
    return metadata.entry_points()
