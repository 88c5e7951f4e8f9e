"""Check proofs about transformers, of files that anyone may have written.

Numpy and the standard library only; nothing is searched. Copy this file out with `check_languages`
and `check_edits`, which know what proves what, and run it: ``python check_proof.py FILE [--model
FOLDER | --beside]``, of a proof about two models ``--model FOLDER --model OTHER``. Exit status 0:
all are proved; 1: not.

*A file* has the SHA-256 of all the rest in its first line, facts as JSON in its second, then
arrays. The weights are among them, and what is proved is proved of these. Whether a saved model, or
the RNN it was exported to, has the same weights and options is what `--model` asks.
"""

import argparse
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

if __package__:
    from tl_dyck.certify import check_edits, check_languages
else:  # copied out
    import check_edits
    import check_languages

ProofError, MOST_BYTES = check_languages.ProofError, 2**28


def read(path):
    """Facts and arrays of a proof's file, if it is whole."""
    with Path(path).open("rb") as file:
        sha256, _, rest = file.read(MOST_BYTES).partition(b"\n")
    if sha256 != hashlib.sha256(rest).hexdigest().encode():
        raise ProofError(f"altered, truncated or larger than {MOST_BYTES:,} bytes: not its digest")
    line, _, numbers = rest.partition(b"\n")
    facts, arrays, end = json.loads(line), {}, 0
    for name, (kind, shape) in facts["arrays"].items():
        if kind not in ("<f8", "<f4", "|u1", "<u2"):
            raise ProofError(f"{name[:40]!r} is no array of numbers")
        arrays[name] = np.frombuffer(numbers, kind, math.prod(shape), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


def tensors(data):
    """The arrays of a safetensors file."""
    kinds, size = {"F32": "<f4", "F64": "<f8"}, 8 + int.from_bytes(data[:8], "little")
    head, found = json.loads(data[8:size]), {}
    for name in head.keys() - {"__metadata__"}:
        start, end = head[name]["data_offsets"]
        array = np.frombuffer(data[size + start : size + end], kinds[head[name]["dtype"]])
        found[name] = array.reshape(head[name]["shape"])
    return found


def symbols(k, depth):
    """Token and depth of each: BOS, then an opening and a closing bracket of each level, type."""
    brackets = itertools.product(range(depth), range(k), (0, 1))
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
        angle, level = math.atan2(depth, levels + 2 - depth), depth - 1 + token % 2
        at = {"onehot": {token * levels + level: 1}, "split": {token: 1, 2 * k + depth: 1}}
        at["yao"] = {token: 1, 2 * k: math.cos(angle), 2 * k + 1: math.sin(angle)}
        row[list(at[kind])] = list(at[kind].values())
    return table


def compare_language(facts, arrays, folder, other=None):
    """Raise ProofError unless saved models have the options and the weights of a proof."""
    if other is not None:
        language = {name: facts[name] for name in ("n_types", "max_depth")}
        its = {name[6:]: array for name, array in arrays.items() if name[:6] == "other."}
        compare_language(facts["other"] | language, its, other)
    options = json.loads((Path(folder) / "config.json").read_bytes())["config"]
    data = (Path(folder) / "model.safetensors").read_bytes()
    block, scale, saved = options["block"], math.sqrt(options["d_head"]), tensors(data)
    added = {"eq6": "after", "eq49": "before", "gpt": "before", "bare": "never"}[block]
    norm = block in ("eq6", "eq49")
    theirs = {"norm": norm, "floor": options["ln_c"] * norm, "added": added, "attn_scale": scale}
    theirs = {"layer_norm": block == "gpt", **options, **theirs}
    whole = {"n_layers": 1, "n_heads": 1, "position": "none", "layer_norm": False}
    whole |= {"act_fn": "relu"} if arrays["W_in"].size else {}
    for name in ("n_types", "max_depth", "norm", "floor", "added", "attn_scale", *whole):
        if theirs[name] != (mine := (facts | whole)[name]):
            raise ProofError(
                f"{name} is {theirs[name]} in the model, {str(mine)[:40]} in the proof"
            )
    if hashlib.sha256(data).hexdigest() != facts["model"]:
        raise ProofError("the model's file is not the one that the proof names")
    own = {"W_U": "unembed.W_U", "b_U": "unembed.b_U"}
    for name in check_languages.AXES:
        mine, room = arrays[name], "mlp" if name[-2:] in ("in", "ut") else "attn"
        there = saved.get(own.get(name, f"blocks.0.{room}.{name}"), np.zeros(mine.shape))
        if name == "W_E":  # by libraries that round cosines differently
            same = np.allclose(embedded(options, saved, mine.shape[1]), mine, 0, 1e-6)
        else:
            same = np.array_equal(there.ravel(), mine.ravel())
        if not same:
            raise ProofError(f"{name} is not that of the model")


def compare_edits(facts, arrays, folder):
    """Raise ProofError unless an exported RNN has the configuration and weights of a proof."""
    file = Path(folder) / "rnn.json"
    if not file.exists():
        raise ProofError(f"{folder} has no rnn.json; export the model (tl-dyck export)")
    theirs, tokens = json.loads(file.read_bytes())["config"], facts["tokens"]
    alphabet, same = theirs["alphabet"], theirs["d_vocab"] == theirs["d_vocab_out"]
    theirs["texts"] = alphabet and [alphabet[token] for token in tokens]
    theirs["names_logits"] = same
    mine = {**facts["config"], "texts": facts["texts"], "names_logits": facts["names_logits"]}
    for name, value in mine.items():
        if theirs[name] != value:
            raise ProofError(f"{name} is {str(theirs[name])[:40]} in the model")
    saved = tensors((Path(folder) / "rnn.safetensors").read_bytes())
    saved["W_E"] = saved["W_E"][tokens]
    for name, array in arrays.items():
        if name != "trees" and not np.array_equal(saved[name], array):
            raise ProofError(f"{name} is not that of the model")


KINDS = {
    check_languages.FORMAT: (check_languages.check, compare_language),
    check_edits.FORMAT: (check_edits.check, compare_edits),
}


def check_file(path, *folders):
    """What the proof in a file proves, as a sentence; raises ProofError if that is nothing.

    The weights are compared with those of the models in the folders, if there are any: one for each
    model that the proof is about.
    """
    try:
        with np.errstate(all="ignore"):
            facts, arrays = read(path)
            if facts["format"] not in KINDS:
                known = ", ".join(KINDS)
                raise ProofError(f"of format {str(facts['format'])[:40]!r}, not of {known}")
            check, compare = KINDS[facts["format"]]
            said = check(facts, arrays)
            models = [facts, facts["other"]] if facts.get("claim") == "agree" else [facts]
            if len(folders) not in (0, len(models)):
                raise ProofError(f"it is about {len(models)} model(s), not {len(folders)}")
            if folders:
                compare(facts, arrays, *folders)
            named = [each["model"] for each in models if each.get("model")]
            how = f"compared with the model{'s'[: len(models) - 1]}"
            how = how if folders else "as the file has them"
            said = f"proved: {said}; {' '.join(('weights', *named, how))}"
            if not said.isprintable():  # nor can it be two lines, the second of another's words
                raise ProofError("it has names that are no text")
            return said
    except ProofError:
        raise
    except OSError as error:
        raise ProofError(f"{error.filename} cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever a file can do wrong, it proves nothing
        raise ProofError(f"damaged ({type(error).__name__})") from None


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description="Check proofs.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        metavar="FOLDER",
        action="append",
        default=[],
        help="compare with the model there; once for each model",
    )
    which.add_argument("--beside", action="store_true", help="with the one in each file's folder")
    options, failed = parser.parse_args(arguments), 0
    for file in options.files:
        folders = [Path(file).parent] if options.beside else options.model
        try:
            print(f"{file}: {check_file(file, *folders)}")
        except ProofError as error:
            print(f"{file}: not proved: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
