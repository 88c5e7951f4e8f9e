"""Check proofs of every kind, and whether the weights in them are those of saved models.

Copy all files ``check_*.py``; they need numpy and search nothing: ``python check_model.py FILE …
[--model FOLDER | --beside]``, of a proof about two models ``--model FOLDER --model OTHER``. Exit
status 0: all are proved; 1: not. Proofs of edits and of automata are of the RNN that a model was
exported to.
"""

import hashlib
import itertools
import math
import sys
from pathlib import Path

import numpy as np

if __package__:
    from tl_dyck.certify import (
        check_agreement,
        check_automaton,
        check_edits,
        check_language,
        check_layer,
        check_two_layers,
    )
else:  # copied out
    import check_agreement
    import check_automaton
    import check_edits
    import check_language
    import check_layer
    import check_two_layers

ProofError, need, line = check_language.ProofError, check_language.need, check_language.line
contents, parsed, MOST_BYTES = check_language.contents, check_language.parsed, 2**30  # of weights


def tensors(data):
    """The arrays of a safetensors file."""
    # safetensors: the header's length in 8 bytes, the header in JSON, then the numbers
    kinds, size = {"F32": "<f4", "F64": "<f8"}, 8 + int.from_bytes(data[:8], "little")
    head, found = parsed(data[8:size]), {}
    for name in head.keys() - {"__metadata__"}:
        start, end = head[name]["data_offsets"]
        array = np.frombuffer(data[size + start : size + end], kinds[head[name]["dtype"]])
        found[name] = array.reshape(head[name]["shape"])
    return found


def symbols(k, depth):
    """Token and depth of each: BOS, then an opening and a closing bracket of each level, type."""
    brackets = itertools.product(range(depth), range(k), (0, 1))
    # the depth after a bracket: that of a closing one is one less than its level
    return [(2 * k, 0), *((2 * a + closes, level + 1 - closes) for level, a, closes in brackets)]


def embedded(options, saved, width):
    """The embedding of each symbol, ``[s, width]``, as a model was saved with it."""
    kind, k, levels = options["embedding"], options["n_types"], options["max_depth"]
    rows = symbols(k, levels)
    if kind == "token":
        return saved["embed.W_E"][[token for token, _ in rows]]
    table = np.zeros((len(rows), width))  # Wen et al. 2023, Eq. 19-21; no saved model repeats it
    table[0, {"onehot": 2 * k * levels, "split": 2 * k + levels + 1, "yao": 2 * k + 2}[kind]] = 1
    for row, (token, depth) in zip(table[1:], rows[1:], strict=True):
        # Yao et al. 2021: (cos, sin) of a depth d is along (D + 2 - d, d)
        angle, level = math.atan2(depth, levels + 2 - depth), depth - 1 + token % 2
        at = {"onehot": {token * levels + level: 1}, "split": {token: 1, 2 * k + depth: 1}}
        at["yao"] = {token: 1, 2 * k: math.cos(angle), 2 * k + 1: math.sin(angle)}
        row[list(at[kind])] = list(at[kind].values())
    return table


def as_embedded(options, saved, mine):
    """Whether it is the embedding of a saved model; libraries round cosines differently."""
    # 4 ulp of 1: that much mathematical libraries differ by; all other embeddings are 0 and 1
    off = 4 * np.finfo(mine.dtype).eps * (options["embedding"] == "yao")
    return np.allclose(embedded(options, saved, mine.shape[1]), mine, 0, off)


def saved_files(folder):
    """A saved model's options, and the bytes of its weights."""
    options = parsed(contents(Path(folder) / "config.json"))["config"]
    return options, contents(Path(folder) / "model.safetensors", MOST_BYTES)


def need_named(data, facts):
    """Raise ProofError unless a proof names the file that holds these bytes."""
    named = hashlib.sha256(data).hexdigest() == facts["model"]
    need(named, "the model's file is not the one that the proof names")


def compare_language(facts, arrays, folder, other=None):
    """Raise ProofError unless saved models have the options and the weights of a proof."""
    if other is not None:
        language = {name: facts[name] for name in ("n_types", "max_depth")}
        # 6: the length of "other."
        its = {name[6:]: array for name, array in arrays.items() if name[:6] == "other."}
        compare_language(facts["other"] | language, its, other)
    options, data = saved_files(folder)
    block, scale, saved = options["block"], math.sqrt(options["d_head"]), tensors(data)
    added = {"eq6": "after", "eq49": "before", "gpt": "before", "bare": "never"}[block]
    norm = block in ("eq6", "eq49")
    theirs = {"norm": norm, "floor": options["ln_c"] * norm, "added": added, "attn_scale": scale}
    theirs = {"layer_norm": block == "gpt", **options, **theirs}
    whole = {"n_layers": 1, "n_heads": 1, "position": "none", "layer_norm": False}
    whole |= {"act_fn": "relu"} if arrays["W_in"].size else {}
    for name in ("n_types", "max_depth", "norm", "floor", "added", "attn_scale", *whole):
        same = theirs[name] == (facts | whole)[name]
        need(same, f"{name} is {theirs[name]!a:.40} in the model, but not in the proof")
    need_named(data, facts)
    for name in check_language.AXES:
        mine = arrays[name]
        there = saved.get(saved_as(f"0.{name}"), np.zeros(mine.shape))
        if name == "W_E":
            same = as_embedded(options, saved, mine)
        else:
            same = np.array_equal(there.ravel(), mine.ravel())
        need(same, f"{name} is not that of the model")


def layers_of(options):
    """What a proof of two layers says of each, as a model was saved with it."""
    block, norm = options["block"], None
    if block == "gpt" and options.get("layer_norm", True):
        norm = "ln"
    mlp = block != "bare" and options.get("mlp", True)
    said = {"state": "none", "n_types": None, "max_depth": None, "eps": options["eps"]}
    said |= {"ln1": norm, "ln2": norm if mlp else None, "ln_final": None}
    said |= {"act_fn": options["act_fn"] if mlp else None, "residual": block != "bare"}
    for name, where in (("ln_c", "eq6"), ("ln_mid", "eq49")):
        said[name] = options["ln_c"] if block == where else None
    said["attn_scale"] = math.sqrt(options["d_head"])
    counted = {"state": "depth", "n_types": options["n_types"], "max_depth": options["max_depth"]}
    first = said if options["embedding"] == "token" else said | counted
    return first, said | {"ln_final": norm}


def saved_as(name):
    """Where a saved model has a weight of a layer."""
    layer, own = name.split(".")
    if own[:2] == "ln":
        norm, weight = own.rsplit("_", 1)
        return f"{norm}.{weight}" if norm == "ln_final" else f"blocks.{layer}.{norm}.{weight}"
    if own[-1] == "U":
        return f"unembed.{own}"
    return f"blocks.{layer}.{'mlp' if own[-2:] in ('in', 'ut') else 'attn'}.{own}"


def compare_two_layers(facts, arrays, folder, other=None):
    """Raise ProofError unless saved models have the options and the weights of a proof."""
    weights = {name: array for name, array in arrays.items() if name != "trees"}
    if other is not None:
        its = {name[6:]: weights.pop(name) for name in list(weights) if name[:6] == "other."}
        language = {name: facts[name] for name in ("n_types", "max_depth")}
        compare_two_layers(facts["other"] | language, its, other)
    options, data = saved_files(folder)
    whole = {name: facts[name] for name in ("n_types", "max_depth")}
    whole |= {"n_layers": 2, "position": "none"}
    for theirs, mine in zip((options, *layers_of(options)), (whole, *facts["config"]), strict=True):
        for name in sorted(theirs.keys() & mine.keys()):
            same = theirs[name] == mine[name]
            need(same, f"{name} is {theirs[name]!a:.40} in the model, but not in the proof")
    need_named(data, facts)
    # token and depth: the two axes of W_E, or the first alone
    saved, rows = tensors(data), np.transpose(symbols(options["n_types"], options["max_depth"]))
    for name, mine in weights.items():
        if name == "0.W_E":
            same = as_embedded(options, saved, mine[tuple(rows[: mine.ndim - 1])])
        else:
            there = saved.get(saved_as(name), np.zeros(mine.shape))
            same = np.array_equal(there, mine)
        need(same, f"{name} is not that of the model")


def need_plain(theirs, config=()):
    """Raise ProofError if an exported RNN has parts that a proof does not know."""
    parts = check_layer.PLAIN | {"score_cap": None, "logit_cap": None, "parallel": False}
    for name, plain in parts.items():
        known = dict(config).get(name, plain)
        need(theirs.get(name, plain) == known, f"{name} is {theirs.get(name)!a:.40} in the model")


def compare_exported(facts, arrays, folder):
    """Raise ProofError unless an exported RNN has the configuration and weights of a proof."""
    file = Path(folder) / "rnn.json"
    need(file.exists(), f"{str(folder)!a} has no rnn.json; export the model (tl-dyck export)")
    theirs, tokens = parsed(contents(file))["config"], facts["tokens"]
    alphabet, named = theirs["alphabet"], theirs.get("predicts")
    if named is None:  # as many tokens as logits are the same
        named = theirs["d_vocab"] if theirs["d_vocab"] == theirs["d_vocab_out"] else 0
    theirs["texts"] = alphabet and [alphabet[token] for token in tokens]
    theirs["names_logits"] = facts.get("target", 0) < named
    need_plain(theirs, facts["config"])
    mine = {**facts["config"], "texts": facts["texts"]}
    mine |= {"names_logits": facts["names_logits"]} if "names_logits" in facts else {}
    for name, value in mine.items():
        need(theirs[name] == value, f"{name} is {theirs[name]!a:.40} in the model")
    saved = tensors(contents(Path(folder) / "rnn.safetensors", MOST_BYTES))
    saved["W_E"] = saved["W_E"][tokens]
    for name, array in arrays.items():
        same = name == "trees" or np.array_equal(saved[name], array)
        need(same, f"{name} is not that of the model")


KINDS = {
    check_language.FORMAT: (check_language.check, compare_language),
    check_agreement.FORMAT: (check_agreement.check, compare_language),
    check_edits.FORMAT: (check_edits.check, compare_exported),
    check_automaton.FORMAT: (check_automaton.check, compare_exported),
    check_two_layers.FORMAT: (check_two_layers.check, compare_two_layers),
    **dict.fromkeys(check_edits.BEFORE, (check_edits.check, compare_exported)),
    **dict.fromkeys(check_automaton.BEFORE, (check_automaton.check, compare_exported)),
}


def check(facts, arrays, *folders):
    """What a proof proves, as a sentence, of the models in the folders if there are any.

    Raises ProofError if it proves nothing, or if a model has other weights or options.
    """
    need(facts["format"] in KINDS, f"of format {str(facts['format'])[:40]!a}")
    check_kind, compare = KINDS[facts["format"]]
    said, n_models = check_kind(facts, arrays), 1 + (facts.get("claim") == "agree")
    if not folders:
        return (
            f"{said}; true of the weights in the file, whatever they are called (--model compares)"
        )
    need(len(folders) == n_models, f"it is about {n_models} model(s), not {len(folders)}")
    compare(facts, arrays, *folders)
    return f"{said}, compared with the model{'s'[: n_models - 1]}"


def verdict(path, *folders, work=check_language.MOST_WORK):
    """Whether the proof in a file proves something; what, or why not, in a line."""
    return check_language.verdict(path, lambda *proof: check(*proof, *folders), work)


def main(arguments=None):
    """The command line."""
    parser = check_language.command_line("Check proofs.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        metavar="FOLDER",
        action="append",
        default=[],
        help="compare with the model there; once for each model",
    )
    which.add_argument("--beside", action="store_true", help="with the one in each file's folder")
    options, failed = parser.parse_args(arguments), False
    for file in options.files:
        folders = [Path(file).parent] if options.beside else options.model
        proved, said = verdict(file, *folders, work=options.work)
        print(f"{line(file)}: {said}")
        failed |= not proved
    return failed


if __name__ == "__main__":
    sys.exit(main())
