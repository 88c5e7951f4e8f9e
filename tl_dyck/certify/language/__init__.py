"""Claims about all strings: a model's prediction on every prefix of a language, decided.

Knows: all prefixes of a language by their profiles, and claims about every one.
Does not know: how models are built or trained (`tl_dyck.models`, `tl_dyck.training`), and edits of
one string (`tl_dyck.certify.transformations`).

`certify_language` is the way in.

**Reading order.** Each file uses only those above it.

- `profiles`: prefixes sorted by how often each symbol occurs, their numbers and probabilities.
- `counted`: a network without positions as a function of profiles.
- `claims`: what is claimed, as margins of profiles.
- `forms`: one head and one norm, as piecewise linear functions: quick to evaluate and to bound.
- `automata`: strings of an automaton as paths of a graph: their least margin, the wrong ones.
- `predictions`: the same where the answer is what models themselves predict.
- `tally`: what becomes of the claim, length by length.
- `evaluator`: a claim on profiles.
- `boxes`, `shells`: every profile of some lengths, listed or decided many at a time, by bounds.
- `questions`: who is asked and what; which models are counted, and which are run.
- `verdict`, `summary`: the certificate, and how it is made of a tally.
- `runner`: a model that is run as it is (`questions` use it, too).
- `running`: any model on an automaton's strings, every one or drawn ones.
- `attempts`, `anytime`: an automaton's errors first, then signs, least margins, counts.
- `automaton_certificate`: the certificate of an automaton.
- `sample`: `sample_error`, where there are too many profiles.
- `ran_certificate`: the certificate of a model that can only be run.
- `decide`: `certify_language`.
"""

from tl_dyck.certify.language.claims import CLAIMS
from tl_dyck.certify.language.decide import certify_language
from tl_dyck.certify.language.profiles import Ending, Profiles
from tl_dyck.certify.language.sample import sample_error
from tl_dyck.certify.language.tally import PrefixFound
from tl_dyck.certify.language.verdict import Bounds, LanguageCertificate, LengthResult, SampledError

__all__ = [
    "CLAIMS",
    "Bounds",
    "Ending",
    "LanguageCertificate",
    "LengthResult",
    "PrefixFound",
    "Profiles",
    "SampledError",
    "certify_language",
    "sample_error",
]
