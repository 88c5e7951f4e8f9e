"""Every architecture of one layer: its RNN, certificates and languages, against running strings."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import draw_normal
from tests.certify.language.test_automata import brute, check, cumulative_sum
from tests.certify.oracles import brute_force, favouring
from tests.models.test_foreign import tokenizer
from tests.rnn.architectures import ARCHITECTURES, built, named, possible
from tl_dyck import Vocabulary, VocabularyError, accuracy_on, construct, load_task
from tl_dyck.certify import (
    Duplicate,
    PerturbationSpace,
    Substitute,
    certify_edits,
)
from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.check_model import need_plain, verdict
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.models.hooked import installed
from tl_dyck.rnn import (
    RNNConfig,
    RNNConfigError,
    RNNInputError,
    UnsupportedModelError,
    export_rnn,
    load_rnn,
    save_rnn,
)

pytestmark = pytest.mark.global_rng  # bridges draw weights, which are replaced

CAPPED = ("soft cap of logits", "2")
DECIDED = [each for each in named() if each != CAPPED]
EVERY = torch.tensor(list(itertools.product(range(5), repeat=5)))
#: What TransformerLens itself computes in single precision, whatever the weights are: norms of its
#: own bridges.
EXACTLY = 1e-9 if installed.MAJOR < 4 else 2e-6
ANY = Substitute({token: tuple(range(5)) for token in range(5)})
SPACE = PerturbationSpace([(ANY, 1), (Duplicate(), 1)])
ALWAYS = 30.0  # so large a bias that a logit always wins
STRING = (4, 2, 2, 0)


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(((found - wanted).abs().max() / (1 + wanted.abs().max())).detach())


@pytest.mark.parametrize(("row", "name"), named())
def test_the_rnn_has_the_logits_of_every_string(row: str, name: str) -> None:
    several = row in ("soft cap of logits", "several of these")
    for dtype in (torch.float64, torch.float32) if several else (torch.float64,):
        model = built(row, name, dtype)
        rnn = export_rnn(model)
        exactly = EXACTLY if dtype == torch.float64 else 2e-5
        for length in (1, 4):
            strings = EVERY[:: 5 ** (5 - length), -length:]
            assert off(rnn(strings), model(strings)) < exactly
            assert off(rnn.last_logits(strings), model(strings)[:, -1]) < exactly


def least_margin(model: Any, string: tuple[int, ...], target: int, bos: int | None) -> float:
    """The least margin on any string of the space, by running all of them."""
    start = () if bos is None else (bos,)
    strings = sorted({start + edited for edited, _ in brute_force(SPACE, string)}, key=len)
    found = []
    for _, group in itertools.groupby(strings, len):
        logits = model(torch.tensor(list(group)))[:, -1].detach().double()
        others = torch.cat([logits[:, :target], logits[:, target + 1 :]], 1)
        found.append(float((logits[:, target] - others.amax(1)).min()))
    return min(found)


def check_edits(model: Any, off: float) -> None:
    """Verdict and least margin by bounds, nothing listed before, against all strings."""
    rnn = export_rnn(model)
    found = certify_edits(model, STRING, None, SPACE, tight=True, always_listed=0)
    least = least_margin(model, STRING, found.target, rnn.config.bos_token)
    assert found.status == ("proved" if least > 0 else "refuted")
    assert found.lower - off <= least <= found.upper + off
    assert found.upper - found.lower < 1e-6
    sure = certify_edits(favouring(rnn, 0, ALWAYS), STRING, 0, SPACE, always_listed=0)
    assert sure.status == "proved"


@pytest.mark.parametrize(("row", "name"), DECIDED)
def test_edits_are_decided_as_by_running_all_of_them(row: str, name: str) -> None:
    check_edits(built(row, name), 1e-5)


@pytest.mark.parametrize(("row", "name"), DECIDED)
def test_a_language_is_decided_as_by_running_it(row: str, name: str) -> None:
    """Every string to a length: how many are wrong, and the least margin, on both of its sides."""
    task, lengths, model = cumulative_sum(2), range(1, 3), built(row, name)
    found = certify_language(model, task, lengths, until="counted")
    check(found, model, task, lengths, off=1e-9 + 10 * EXACTLY)


@pytest.mark.parametrize(("row", "name"), DECIDED)
def test_near_ties_fall_on_their_side(row: str, name: str) -> None:
    task = dataclasses.replace(cumulative_sum(2), answer=lambda total: 1 if total == 0 else None)
    rnn = export_rnn(built(row, name))
    least = brute(rnn, task, 3).min()
    for side in (1e-6, -1e-6):
        found = certify_language(favouring(rnn, 1, side - least), task, [3])
        assert found.status == ("proved" if side > 0 else "refuted")
        assert found.margin.high == pytest.approx(side, abs=1e-8)


def test_capped_logits_are_run_and_not_decided() -> None:
    model = built(*CAPPED)
    with pytest.raises(
        UnsupportedModelError, match=r"^unembed: .*cfg\.output_logits_soft_cap = -1\.0"
    ):
        certify_edits(model, STRING, None, SPACE)
    names = ("[", "]", "(", ")", "<bos>")
    rnn = export_rnn(model, alphabet=names, separator="", bos_token=4)
    task, wrong, least = load_task("dyck-2-4"), 0, []
    for string in itertools.chain.from_iterable(map(prefixes, range(4))):
        for closing in may_follow(string)[2:]:  # where one is open, it is to be the largest
            logits = model(torch.tensor([(4, *string)]))[0, -1].detach()
            others = torch.cat([logits[:closing], logits[closing + 1 :]])
            least.append(float(logits[closing] - others.max()))
            wrong += least[-1] < 0
    found = certify_language(rnn, task, 3)
    assert "prefixes were run" in found.reason
    assert (found.status, found.wrong) == ("refuted", wrong)
    assert found.margin.high == pytest.approx(min(least), abs=1e-5)


#: Ids of [ ] ( ) and BOS in a model of seven tokens, and of its nine logits where it has more.
THEIRS = (4, 5, 2, 3, 1)
OUTPUTS = (None, 6, 2, 3, 5, 4, None, 1, 0)


@pytest.mark.parametrize(
    ("row", "outputs"), [("Llama", OUTPUTS), ("Qwen3", None), ("GPT-NeoX", OUTPUTS)]
)
def test_ids_of_its_own_are_named_at_the_export(
    row: str, outputs: tuple[int | None, ...] | None
) -> None:
    kind = "attention and MLP in parallel" if row == "GPT-NeoX" else "several of these"
    if (kind, row) not in named():
        kind, row = "several of these", "Llama"
    check_ids(built(kind, row, d_vocab=7, d_vocab_out=len(outputs or range(7))), outputs)


def check_ids(model: Any, outputs: tuple[int | None, ...] | None) -> None:
    """Every prefix through the model in its own ids: right ones, sets, and how many are wrong."""
    task = load_task("dyck-2-4")
    ids = Vocabulary(task.language, THEIRS[:4], bos=1, padding=0)
    rnn = export_rnn(model, vocabulary=ids, outputs=outputs)
    columns = [THEIRS.index(t) if t in THEIRS else None for t in outputs or range(7)]
    at = [columns.index(token) for token in range(4)]
    wrong = sets = 0
    for strings in map(prefixes, range(4)):
        tokens = [[1, *(THEIRS[token] for token in string)] for string in strings]
        every = model(torch.tensor(tokens))[:, -1].detach()
        for string, logits in zip(strings, every, strict=True):
            wanted = set(may_follow(string))
            sets += {token for token in range(4) if logits[at[token]] > 0} != wanted
            if len(wanted) > 2:
                wrong += int(logits.argmax()) != at[max(wanted - {0, 2})]
        found = rnn(torch.tensor([(4, *string) for string in strings]))[:, -1]
        assert off(found[:, :4], every[:, at]) < 1e-5
    assert certify_language(rnn, task, 3).wrong == wrong
    assert certify_language(rnn, task, 3, "allowed").wrong == sets
    assert rnn.config.alphabet == ("[", "]", "(", ")", "<bos>", "<5>", "<6>")
    bare = export_rnn(
        model, vocabulary=Vocabulary(task.language, (4, 5, 2, 3), bos=None), outputs=outputs
    )
    assert (
        off(bare(torch.tensor([[0, 2, 3]]))[0, -1, :4], model(torch.tensor([[4, 2, 3]]))[0, -1, at])
        < 1e-5
    )


def test_what_is_said_of_ids_is_said_once_and_goes_together() -> None:
    model = built("several of these", "Llama", d_vocab=7)
    task = load_task("dyck-2-4")
    ids = Vocabulary(task.language, THEIRS[:4], bos=1)
    with pytest.raises(TypeError, match="leave bos_token"):
        export_rnn(model, vocabulary=ids, bos_token=1)
    with pytest.raises(TypeError, match="outputs are of a vocabulary"):
        export_rnn(model, outputs=())
    with pytest.raises(VocabularyError, match="no tokenizer"):
        export_rnn(model, vocabulary=task.language)
    with pytest.raises(VocabularyError, match="id 9"):
        export_rnn(model, vocabulary=Vocabulary(task.language, (4, 5, 2, 9), bos=1))
    with pytest.raises(VocabularyError, match="are known"):
        export_rnn(construct.uniform_attention(task.language), vocabulary=ids)
    rnn = export_rnn(model, vocabulary=ids)
    found = accuracy_on(rnn, ["[()]", "[]" * 9], task)  # of ten positions
    assert (found.places, found.too_long) == (2, 1)


def prefixes(length: int) -> list[tuple[int, ...]]:
    """Of dyck-2-4, up to four brackets: no depth is too large."""
    strings = itertools.product(range(4), repeat=length)
    return [s for s in strings if all(s[i] in may_follow(s[:i]) for i in range(length))]


def may_follow(string: tuple[int, ...]) -> list[int]:
    """Both opening brackets, and what closes the last that is open."""
    stack: list[int] = []
    for token in string:
        stack = stack[:-1] if token % 2 else [*stack, token]
    return [0, 2, *(token + 1 for token in stack[-1:])]


def test_what_checkers_do_not_know_has_no_proof(tmp_path: Path) -> None:
    """Nor is a proof of a plain network taken for one of a network with more in it."""
    with pytest.raises(NoProofError, match=r"has score_cap=2\.0, which the checker"):
        prove_edits(built("soft cap of scores", "2"), (0, 1), None, "dup:1")
    model = built("several of these", "Llama")
    folder = save_rnn(export_rnn(model), tmp_path / "rnn")
    assert torch.equal(load_rnn(folder)(EVERY), export_rnn(model)(EVERY))
    plain = {"positions": "standard", "qk_norm": False, "score_cap": None, "gated": False}
    need_plain({**plain, "logit_cap": None})
    need_plain({})  # written before there were such fields
    for name, value in export_rnn(model).config.beyond.items():
        with pytest.raises(ProofError, match=f"^{name} is "):
            need_plain({**plain, name: value})
        need_plain({**plain, name: value}, {name: value})
        with pytest.raises(ProofError, match=f"^{name} is "):
            need_plain(plain, {name: value})
    with pytest.raises(ProofError, match=r"^parallel is "):
        need_plain({**plain, "parallel": True})


@pytest.mark.parametrize(
    ("row", "name"),
    [
        *(("RMSNorm", "RMS"), ("grouped queries", "one group"), ("gated MLP", "GEGLU")),
        *(("several of these", "Llama"), ("several of these", "Qwen3")),
    ],
)
def test_these_have_proofs(row: str, name: str, tmp_path: Path) -> None:
    if not possible(row, name):
        pytest.skip("the installed TransformerLens has no such native model")
    rnn = favouring(export_rnn(built(row, name)), 0, ALWAYS)
    proof = prove_edits(rnn, (0, 1, 2), 0, "dup:1")
    (tmp_path / "one.proof").write_bytes(proof.content)
    save_rnn(rnn, tmp_path)
    assert verdict(tmp_path / "one.proof", tmp_path)[0]


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("positions='rotary', but state='none'", {"positions": "rotary"}),
        ("gated=True, but there is no MLP", {"gated": True}),
        ("parallel=True, but there is no MLP", {"parallel": True}),
        ("unknown positions 'rotaries'", {"positions": "rotaries"}),
    ],
)
def test_fields_that_do_not_go_together(said: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RNNConfigError, match=said):
        RNNConfig(d_model=2, n_heads=1, d_head=2, d_vocab=2, d_vocab_out=2, n_ctx=4, **fields)


def test_queries_of_such_positions_need_their_states() -> None:
    rnn = export_rnn(built("rotary positions", "halves"))
    tokens = EVERY[:1]
    r = rnn.embed(tokens, rnn.states(tokens))
    with pytest.raises(RNNInputError, match="rotary positions"):
        rnn.key(r)


# --- models of transformers, as bridges -----------------------------------------------------------

HF = {
    **{"vocab_size": 5, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 7, "max_position_embeddings": 10, "bos_token_id": 1},
    **{"eos_token_id": 2, "pad_token_id": 0},
}
GROUPS = {"num_key_value_heads": 1, "head_dim": 4}
#: By the name of the family and options; in some, parts stand side by side, or in tables.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("Llama", GROUPS),
    "Llama, tied": ("Llama", GROUPS | {"tie_word_embeddings": True}),
    "Mistral": ("Mistral", GROUPS | {"sliding_window": None}),
    "Qwen3": ("Qwen3", GROUPS),
    "GPT-NeoX": ("GPTNeoX", {"use_parallel_residual": False}),
    "GPT-NeoX, parallel": ("GPTNeoX", {}),
    "GPT-J": (
        "GPTJ",
        {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 10, "rotary_dim": 2, "n_inner": 7},
    ),
    "Falcon": ("Falcon", {"ffn_hidden_size": 7}),
    "Falcon, two norms": (
        "Falcon",
        {"ffn_hidden_size": 7, "new_decoder_architecture": True, "num_kv_heads": 1},
    ),
    "Phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "Cohere": ("Cohere", {"num_key_value_heads": 1}),
    "OPT": ("OPT", {"ffn_dim": 7, "word_embed_proj_dim": 8}),
    "Mistral, wide window": ("Mistral", GROUPS | {"sliding_window": 10}),
}
NOT_KNOWN: dict[str, tuple[str, dict[str, Any], str]] = {
    "Gemma 2": ("Gemma2", GROUPS, r"blocks\.0\.ln1_post: norms behind attention and MLP"),
    "OLMo 2": ("Olmo2", {}, r"blocks\.0\.ln1_post: norms behind attention and MLP"),
    "Gemma": ("Gemma", GROUPS, "embeddings times the root of d_model"),
    "Mistral": ("Mistral", GROUPS | {"sliding_window": 9}, "a sliding window that is less than"),
    "Mixtral": ("Mixtral", GROUPS | {"num_local_experts": 2}, "a mixture of experts"),
    "Bloom": ("Bloom", {"n_layer": 1, "n_head": 2}, "a norm behind the embedding"),
    "Falcon, ALiBi": ("Falcon", {"ffn_hidden_size": 7, "alibi": True}, "rounded to bfloat16"),
    "OPT": ("OPT", {"ffn_dim": 7, "do_layer_norm_before": False}, "do_layer_norm_before=False"),
}


def bridge(family: str, options: dict[str, Any], folder: Path) -> Any:
    import transformers
    from transformer_lens.model_bridge import TransformerBridge

    if installed.MAJOR < 4:
        pytest.skip("bridges of TransformerLens 3 say less of themselves")
    config = getattr(transformers, f"{family}Config")(**HF | options)
    with torch.random.fork_rng(devices=[]):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    draw_normal(model, 2, 0.5).eval().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return TransformerBridge.boot_transformers(str(folder), hf_model=model, device="cpu")


@pytest.mark.parametrize("name", FAMILIES)
def test_bridges_of_transformers_are_decided_in_their_ids(name: str, tmp_path: Path) -> None:
    family, options = FAMILIES[name]
    model = bridge(family, options | {"vocab_size": 7}, tmp_path)
    check_ids(model, None)
    check_edits(model, 1e-4)
    model.enable_compatibility_mode()
    assert off(export_rnn(model)(EVERY), model(EVERY)) < 1e-5


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_other_bridges_are_refused_by_name(name: str, tmp_path: Path) -> None:
    family, options, said = NOT_KNOWN[name]
    with pytest.raises(UnsupportedModelError, match=said) as found:
        export_rnn(bridge(family, options, tmp_path))
    assert "\n" not in str(found.value)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_has_each_architecture_and_what_becomes_of_it() -> None:
    """A row each, in this order; which are decided and which only run is tested above."""
    text = Path("docs/certify_classifier.md").read_text(encoding="utf-8")
    table = text.partition("<!-- architectures -->")[2].partition("<!-- /architectures -->")[0]
    rows = [line.strip("|").split("|") for line in table.strip().splitlines()[2:]]
    found = {row.strip(): verdict.strip() for row, verdict, _ in rows}
    assert found == {row: "run" if row == CAPPED[0] else "decided" for row in ARCHITECTURES}
