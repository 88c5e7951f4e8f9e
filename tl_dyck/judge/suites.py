"""Fixed lists of cases, so that numbers can be cited; and which seeds are for tuning."""

from __future__ import annotations

import hashlib
import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from tl_dyck.judge.cases import KEYS, list_kinds, with_key
from tl_dyck.judge.protocol import JudgeError
from tl_dyck.judge.small_tasks import TASKS
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_integer, check_seed, shown
from tl_dyck.kit.files import sha256
from tl_dyck.kit.registry import unknown_name

#: Another number where the same seed gives another case, or a method other scores.
CODE = 13
#: Seeds from here on are held out: methods are scored by them, and must not be tuned on them.
HELD_OUT = 1_000_000
#: Of a kind, in a suite.
MOST_CASES = 100_000
#: A salt that cannot have as many bits is soon guessed; as many are drawn from it.
LEAST_BITS = 128
#: What a salt may be made of, and how many there are; whatever else, 95 (printed ASCII).
_KINDS = (string.digits, string.digits + "abcdef", string.ascii_lowercase, string.ascii_letters)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Suite:
    """How many cases of each kind, from which seed on.

    Attributes:
        name: by which its numbers are cited; another name where a case or a question differs.
        first_seed: of every kind.
        sizes: kind of model to the number of cases.
        key: of a private suite, 128 bits by which all is drawn; 0 for a public one.

    Raises:
        WrongTypeError: a field is of another type.
        WrongValueError: a number is out of its range.
        UnknownNameError: no such kind of model.
        JudgeError: there are no cases.
    """

    name: str
    first_seed: int = HELD_OUT
    sizes: Mapping[str, int] = field(default_factory=dict)
    key: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise WrongTypeError(f"a suite's name must be text, got {self.name!r:.80}")
        if not isinstance(self.sizes, Mapping):
            raise WrongTypeError(
                f'sizes must be numbers of cases by kind, such as {{"uniform": 4}}, '
                f"got {self.sizes!r:.80}"
            )
        if not self.sizes:
            raise JudgeError(f'suite {self.name!r} has no cases; pass sizes={{"uniform": 4}}')
        for kind in self.sizes:
            if kind not in list_kinds():
                raise unknown_name("kind of case", kind, list_kinds())
        sizes = {
            kind: check_integer(f"number of {kind} cases", size, 1, MOST_CASES)
            for kind, size in self.sizes.items()
        }
        object.__setattr__(self, "sizes", sizes)
        first = check_seed(self.first_seed, "first_seed")
        check_seed(first + max(sizes.values()) - 1, "the last seed")
        object.__setattr__(self, "first_seed", first)
        object.__setattr__(self, "key", check_integer("key", self.key, 0, KEYS - 1))

    @checked
    def with_salt(self, salt: str) -> Suite:
        """As many other cases, a private test set: who has not the salt cannot make it.

        Everything is drawn from 128 bits. So the suite is as private as the salt is hard to guess:
        ``secrets.token_hex(16)`` has as many. What is too short to have them is refused. Of what is
        long enough nobody sees how it was found: a sentence from a book is guessed.

        Args:
            salt: random characters, such as 32 hexadecimal digits.

        Raises:
            WrongTypeError: the salt is no text.
            WrongValueError: it has fewer than 128 bits, even if each of its characters is random.
        """
        if not isinstance(salt, str):
            raise WrongTypeError(f"a salt is text, not {shown(salt)}")
        if (bits := _most_bits(salt)) < LEAST_BITS:
            raise WrongValueError(
                f"a salt of {len(salt)} characters that has at most {bits:.0f} bits is guessed; "
                f"{LEAST_BITS} are wanted: openssl rand -hex 16, or python -c "
                "'import secrets; print(secrets.token_hex(16))'"
            )
        # slow on purpose: a guess costs 50 ms
        secret = hashlib.scrypt(
            salt.encode(errors="surrogatepass"), salt=b"tl_dyck.judge", n=2**14, r=8, p=1, dklen=64
        )
        name = f"{self.name}, salted {sha256(['name', secret[32:].hex()])[:8]}"
        # of 64 bytes: 7 for the first seed, 16 for the key, the second half for
        # the name; none is used twice
        first = HELD_OUT + int.from_bytes(secret[:7], "big")
        key = int.from_bytes(secret[16:32], "big") or 1
        return replace(self, name=name, first_seed=first, key=key)

    def cases(self) -> Iterator[tuple[str, int]]:
        """Kinds and seeds; in those of a private suite is its key."""
        for kind, size in self.sizes.items():
            for seed in range(self.first_seed, self.first_seed + size):
                yield kind, with_key(seed, self.key)


def _most_bits(salt: str) -> float:
    """How many bits a salt has if each of its characters is random; repeated words count once."""
    words = salt.strip()
    if not words:
        return 0.0
    period = (words + words).find(words, 1)  # of what does not repeat, its length
    kinds = [len(kind) for kind in _KINDS if set(words) <= set(kind)]
    if (few := len(set(words))) < 6:  # bits, for example; of random digits nobody sees so few
        kinds = [few]
    # 95 characters are printable in ASCII; others are counted as no more
    return period * math.log2(min(kinds, default=95))


# at least half of the questions on heads and brackets are of trained models; the file has 15 MB
_QUICK = {
    "uniform": 8,
    "balanced": 16,
    "stack": 16,
    "backup": 16,
    "alone": 120,
    "trained": 72,
    "hidden": 80,
    "twins": 6,
}
#: For trying a method out: other seeds than those that count.
DEVELOPMENT = Suite(name="development", first_seed=0, sizes=dict.fromkeys(_QUICK, 4))

_EDGES = {"built-edges": 16, "post-norm": 20, "pre-norm": 20}
_PARTS = {"levels": 40, "features": 16}
# one case of *sign* in five asks about *pattern*, half of *modular* about *carries*: as many are
# made of each that an interval over its cases is about as wide as another task's
_MORE = {"hidden-sign": 320, "hidden-modular": 160}
_TASKS = {f"hidden-{name}": 60 for name in TASKS} | _MORE

#: `judge-3.1` at its two scales: the first cases of "full" are those of "quick". Of other models
#: are "edges", "parts", which asks about depth and features, and "tasks", of which one is brackets.
SUITES = {
    "quick": Suite(name="judge-3.1/quick", sizes=_QUICK),
    "full": Suite(name="judge-3.1/full", sizes={kind: 5 * size for kind, size in _QUICK.items()}),
    "edges": Suite(name="judge-2.1/edges", sizes=_EDGES),
    "parts": Suite(name="judge-2.1/parts", sizes=_PARTS),
    "tasks": Suite(name="judge-2.4/tasks", sizes=_TASKS),
}
