"""Perturbation spaces and certificates: does a prediction survive every edit of a string?

Knows: sets of strings, what is claimed on them, verdicts and proofs.
Does not know: how models are built or trained (`tl_dyck.models`, `tl_dyck.training`): it is handed
weights.

Examples:
    >>> from tl_dyck import construct, load_task
    >>> language = load_task("dyck-2-4").language
    >>> space = PerturbationSpace([(InsertMatchedPairs(language), 2)])  # "pairs:2"
    >>> prefix = language.tokenize("[(()")
    >>> space.size(prefix)
    161
    >>> model = construct.uniform_attention(language)
    >>> certificate = certify_edits(model, prefix, None, space)  # or certifier="interval", …
    >>> certificate.status, language.alphabet[certificate.target]
    ('proved', ')')

Imports torch, numpy and einops, never TransformerLens. The certifiers themselves live in
`tl_dyck_hooks.certifiers` and are found by entry point, as anyone else's are. Called, this module
is `certify_edits`.
"""

from tl_dyck.certify.certificate import Certificate, Witness
from tl_dyck.certify.change import LogitChange, worst_logit_change
from tl_dyck.certify.dyck import DyckCertificate, DyckCertificates, certify_dyck
from tl_dyck.certify.edits import certify, certify_each, certify_edits, certify_many
from tl_dyck.certify.lattice import SpaceTooLargeError
from tl_dyck.certify.marks import Passage, passages
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import Certifier, CertifyError, certifiers, conclude, list_certifiers
from tl_dyck.certify.questions import Asker, SpaceQuestion
from tl_dyck.certify.space_parser import Resources, load_synonyms, parse_space, transformations
from tl_dyck.certify.spaces import Edit, PerturbationSpace, apply_edits
from tl_dyck.certify.transformations import (
    STOP_WORDS,
    Delete,
    Duplicate,
    Insert,
    InsertMatchedPairs,
    SpaceError,
    Substitute,
    SwapAdjacent,
    Transformation,
    substitution_table,
)
from tl_dyck.certify.word_spaces import WordSpace, word_space
from tl_dyck.kit.face import make_callable
from tl_dyck.language.alphabet import Symbols

__all__ = [
    "STOP_WORDS",
    "Asker",
    "Certificate",
    "Certifier",
    "CertifyError",
    "Delete",
    "Duplicate",
    "DyckCertificate",
    "DyckCertificates",
    "Edit",
    "Insert",
    "InsertMatchedPairs",
    "LogitChange",
    "Objectives",
    "Passage",
    "PerturbationSpace",
    "Resources",
    "SpaceError",
    "SpaceQuestion",
    "SpaceTooLargeError",
    "Substitute",
    "SwapAdjacent",
    "Symbols",
    "Transformation",
    "Witness",
    "WordSpace",
    "apply_edits",
    "certifiers",
    "certify",
    "certify_dyck",
    "certify_each",
    "certify_edits",
    "certify_many",
    "conclude",
    "list_certifiers",
    "load_synonyms",
    "parse_space",
    "passages",
    "substitution_table",
    "transformations",
    "word_space",
    "worst_logit_change",
]

make_callable(__name__, certify_edits)
