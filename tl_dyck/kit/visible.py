r"""What others wrote (names, paths, messages), as text that can be printed.

Knows: which characters a terminal would act on. They become escapes, ``\x1b`` and the like. Errors,
the screen and pages all show what they do not know through here.
"""

from __future__ import annotations

import re

# control characters but the line feed; marks that change the direction of text; line separators;
# halves of surrogates
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: object) -> str:
    """Text in which all that a terminal would act on is an escape; only line feeds stay."""
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def in_a_line(text: object) -> str:
    """`visible` text without line feeds, which could make a line of their own."""
    return visible(text).replace("\n", "\\n")
