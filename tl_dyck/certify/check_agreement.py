"""Check that two one-layer transformers predict the same token after every prefix.

Copy two files, this one and ``check_language.py``, whose theorem this uses; they need numpy and
search nothing: ``python check_agreement.py FILE …``.

The trees of the file name a token for every prefix; each model is proved to predict it. The other
model's facts and weights are in the file, too. Or it is the same model with a head that attends
uniformly, as one does that has no queries.
"""

import sys

if __package__:
    from tl_dyck.certify import check_language as base
else:  # copied out
    import check_language as base

FORMAT = "tl_dyck.agreement/1"
CLAIMS = {
    "agree": "two models predict the same token",
    "head": "the prediction stays the same when the head attends uniformly",
}
LANGUAGE = ("n_types", "max_depth", "length")


def models(facts, arrays):
    """Facts and weights of each model, as of a proof that it predicts what the trees name."""
    named = {name: facts[name] for name in LANGUAGE} | {"format": base.FORMAT, "claim": "named"}
    if facts["claim"] == "agree":
        other = {name[6:]: array for name, array in arrays.items() if name[:6] == "other."}
        yield facts["other"] | named, other | {"trees": arrays["trees"]}
    else:
        yield facts | named, arrays | {name: 0 * arrays[name] for name in ("W_Q", "b_Q")}
    yield facts | named, arrays


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    base.need(facts["format"] == FORMAT, f"not of format {FORMAT}")
    for each in models(facts, arrays):
        base.check(*each)  # first: what a file says may be absurd
    said = f"{CLAIMS[facts['claim']]}, after {base.prefixes(facts)}"
    other = facts["other"]["model"] if facts["claim"] == "agree" else None
    return said if other is None else f"{said} and {str(other)[:64]!a}"


if __name__ == "__main__":
    sys.exit(base.main(how=check))
