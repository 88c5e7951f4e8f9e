"""Proofs of paths whose files were changed and sealed again: the same for edits and automata."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.certify.oracles import random_rnn
from tests.certify.proofs.common import check_file
from tl_dyck.certify import check_edits
from tl_dyck.certify.check_language import ProofError
from tl_dyck.rnn import RNNConfig, TwoLayerRNN


def change_arrays(arrays: dict[str, Any], kind: int, rng: np.random.Generator) -> None:
    """Change a node (kind 0), exchange two pieces of the trees (1), or change a weight (2)."""
    name = "trees" if kind < 2 else str(rng.choice(sorted(set(arrays) - {"trees"})))
    array = arrays[name] = arrays[name].copy()
    if kind == 0:
        array[rng.integers(len(array))] = rng.choice([0, 1, 2, 5, 9, 2**15, check_edits.BOUND])
    elif kind == 1:
        at = np.sort(rng.integers(len(array) + 1, size=3))
        arrays[name] = np.concatenate([np.split(array, at)[k] for k in (0, 2, 1, 3)])
    else:
        array.flat[rng.integers(array.size)] += rng.choice([-1.0, 1e-3, 1.0, np.nan, 1e300])


def model_in(facts: dict[str, Any], arrays: dict[str, Any], rnn: TwoLayerRNN) -> TwoLayerRNN:
    """The model that a file holds; what it leaves out is that of the model it was made of."""
    weights = {n: torch.tensor(a, dtype=torch.float64) for n, a in arrays.items() if n != "trees"}
    embedded = torch.zeros((rnn.config.d_vocab, *weights["W_E"].shape[1:]), dtype=torch.float64)
    embedded[facts["tokens"]], weights["W_E"] = weights["W_E"], embedded
    fields = {**rnn.config.to_dict(), **facts["config"], "separator": None}
    return TwoLayerRNN(RNNConfig(**fields), weights)


def refuse_changes(
    proof: Path,
    changed: Callable[[Path, np.random.Generator], bytes],
    true: Callable[[Path, TwoLayerRNN], bool],
    file: Path,
) -> None:
    """500 sealed changes are refused in a line, or true; 200 changed bytes are refused."""
    rng, accepted = np.random.default_rng(0), 0
    rnn = random_rnn(2, act_fn="relu", n_heads=2, bos_token=6, state="position", ln2="ln")
    for _ in range(500):
        file.write_bytes(changed(proof, rng))
        try:
            said = check_file(file)
        except ProofError as error:
            said = str(error)
        else:
            accepted += 1
            assert true(file, rnn), said
        assert len(said.splitlines()) == 1
    assert 0 < accepted < 250
    data = proof.read_bytes()
    for _ in range(200):
        place = int(rng.integers(len(data)))
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ProofError):
            check_file(file)
