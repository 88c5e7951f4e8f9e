"""Generation against the slowest loop: the model on the whole string, token by token."""

from __future__ import annotations

import pytest
import torch

from tl_dyck import build_model, get_config
from tl_dyck.tasks import AutomatonTask

BOS = 4
PROMPTS = ["", "[", "[(", "[()](", "(([])["]


def greedy(model, prompt: str, steps: int) -> list[int]:
    tokens = [BOS, *("[]()".index(bracket) for bracket in prompt)]
    for _ in range(steps):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens


def until_bos(tokens: list[int], prompt: str) -> list[int]:
    """What is left of a continuation that ends with the first BOS after its prompt."""
    start = len(prompt) + 1
    return tokens[: tokens.index(BOS, start) + 1] if BOS in tokens[start:] else tokens


def text(tokens: list[int]) -> str:
    return "".join("[]()"[token] for token in tokens if token != BOS)


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt", "minimal-yao", "figure2-onehot"])
def test_greedy_continuation(random_model, family):
    model = random_model(family, seed=5)
    for prompt in PROMPTS:
        expected = greedy(model, prompt, 9)
        assert model.generate(prompt, 9, do_sample=False, stop_at_eos=False) == text(expected)
        tokens = torch.tensor([greedy(model, prompt, 0)])
        assert model.generate(tokens, 9, do_sample=False, stop_at_eos=False).tolist() == [expected]
        ended = until_bos(expected, prompt)
        assert model.generate(prompt, 9, do_sample=False, return_type="tokens").tolist() == [ended]


@pytest.mark.parametrize("family", ["gpt-linear", "minimal-yao"])
def test_a_list_is_its_strings_one_by_one(random_model, family):
    model = random_model(family, seed=6)
    together = model.generate(PROMPTS, 8, do_sample=False)
    assert together == [model.generate(prompt, 8, do_sample=False) for prompt in PROMPTS]
    assert (
        model.generate(PROMPTS[1:2], 8, do_sample=False) == together[1]
    )  # TransformerLens' way: one string, no list


def test_tokens_of_a_list_are_padded_on_the_left_and_filled_at_the_end(random_model):
    model = random_model("minimal-onehot")

    def ending(logits):  # the second string ends after one bracket, the first goes on
        logits[:] = 0
        logits[..., 3] = 1
        if logits.shape[1] == 4:
            logits[1, :, BOS] = 2
        return logits

    original = model.unembed.forward
    model.unembed.forward = lambda x: ending(original(x))
    out = model.generate(["[(", "["], 3, do_sample=False, return_type="tokens")
    assert out.tolist() == [[BOS, 0, 2, 3, 3, 3], [BOS, BOS, 0, 3, BOS, BOS]]
    out = model.generate(["[(", "["], 3, do_sample=False, return_type="tokens", eos_token_id=3)
    assert out.tolist() == [[BOS, 0, 2, 3], [BOS, BOS, 0, 3]]
    out = model.generate(["[(", "["], 3, do_sample=False, return_type="tokens", eos_token_id=[0, 3])
    assert out.tolist() == [[BOS, 0, 2, 3], [BOS, BOS, 0, 3]]


@pytest.mark.parametrize("family", ["gpt-learned", "minimal-yao"])
def test_drawing_follows_the_distribution(random_model, family):
    """Frequencies of 4,000 first tokens against the model's probabilities, at two temperatures."""
    model = random_model(family, seed=8)
    prompt = model.to_tokens("[(").expand(4000, -1)
    with torch.no_grad():
        logits = model(prompt[:1])[0, -1]
    for temperature in (1.0, 3.0):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            drawn = model.generate(prompt, 1, temperature=temperature)[:, -1]
        shares = torch.bincount(drawn, minlength=5) / 4000
        wanted = (logits / temperature).softmax(-1)
        assert (shares - wanted).abs().max() < 5 * (0.25 / 4000) ** 0.5
    assert (
        model.generate(prompt[:2], 4, temperature=0.0).tolist()
        == model.generate(prompt[:2], 4, do_sample=False).tolist()
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        top = model.generate(prompt, 1, top_k=2, temperature=5.0)[:, -1]
    assert set(top.tolist()) == set(logits.topk(2).indices.tolist())


def test_the_same_global_seed_gives_the_same_string(random_model):
    model = random_model("minimal-onehot")
    drawn = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            drawn.append(model.generate("[", 12, freq_penalty=0.1, top_p=0.9))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("family", ["gpt", "figure2-onehot"])
def test_n_ctx_is_a_limit_for_prompt_and_continuation(random_model, family):
    model = random_model(family, n_ctx=10)
    assert (
        len(model.generate("[[[[", 5, stop_at_eos=False, do_sample=False, return_type="tokens")[0])
        == 10
    )
    for prompt in ("[[[[", ["[", "[[[["], torch.tensor([[4, 0, 0, 0, 0]])):
        with pytest.raises(
            ValueError, match=r"11 tokens \(BOS included\) exceed this model's n_ctx=10"
        ):
            model.generate(prompt, 6)
    with pytest.raises(ValueError, match="12 tokens"):
        model("[" * 11)
    with pytest.raises(ValueError, match="12 tokens"):
        model.to_tokens("[" * 11)
    assert model.to_tokens("[" * 11, truncate=True).shape == (1, 10)
    assert model("[" * 9).shape == (1, 10, 5)


@pytest.mark.parametrize("family", ["gpt", "minimal-split"])
def test_bad_arguments(random_model, family):
    model = random_model(family)
    with pytest.raises(ValueError, match=r"tokens\[None\], not \[3\]"):
        model.generate(torch.tensor([4, 0, 1]))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        model.generate("[", 0)
    with pytest.raises(ValueError, match=r"unknown return_type 'token'. Did you mean 'tokens'"):
        model.generate("[", return_type="token")
    with pytest.raises(ValueError, match="no prompt in the list"):
        model.generate([])
    with pytest.raises(ValueError, match="prepend_bos=True"):
        model.generate("", prepend_bos=False)
    with pytest.raises(TypeError, match="output_logits"):
        model.generate("[", output_logits=True)
    with pytest.raises(ValueError, match="unknown bracket 'x' at character 1"):
        model.generate("[x]")


@pytest.mark.parametrize("family", ["gpt", "minimal-split"])
def test_what_is_no_token_is_refused(random_model, family):
    model = random_model(family)
    for wrong in (-1, 5, 99):
        with pytest.raises(ValueError, match=rf"token {wrong} is outside 0\.\.4"):
            model(torch.tensor([[4, wrong]]))
    for dtype in (torch.float32, torch.float64, torch.bool):
        with pytest.raises(
            TypeError, match=r"tokens must be a tensor of integers|parameter 'tokens'"
        ):
            model(torch.ones(1, 3).to(dtype))
    for dtype in (torch.int32, torch.int64):
        assert torch.equal(model(torch.tensor([[4, 0, 1]]).to(dtype)), model("[]"))
    assert torch.equal(model(torch.tensor([4, 0, 1])), model("[]"))


@torch.no_grad()
def test_it_stops_at_balance(random_model):
    """Each string ends with its last closing bracket; a prompt that is balanced may go on."""
    model = random_model("gpt")
    answers = {2: 2, 3: 3, 4: 3, 5: 1, 6: 0}  # by the length of what is read: ( ) ) ] [

    def said(x):
        logits = torch.zeros(*x.shape[:2], 5)
        logits[..., answers[x.shape[1]]] = 1
        return logits

    model.unembed.forward = said
    options = {"do_sample": False, "return_type": "tokens"}
    alone = model.generate("[", 5, stop="balanced", **options)
    assert alone.tolist() == [[BOS, 0, 2, 3, 3]]  # two are closed, which leaves none open
    pair = model.generate(torch.tensor([[BOS, 0], [BOS, BOS]]), 4, stop="balanced", **options)
    assert pair.tolist() == [[BOS, 0, 2, 3, 3], [BOS, BOS, 2, 3, BOS]]
    assert model.generate("[", 2, stop="balanced", do_sample=False) == "[()"
    assert model.generate("[", 4, do_sample=False) == "[())]"
    with pytest.raises(ValueError, match=r"unknown stop 'balance'\. Did you mean 'balanced'"):
        model.generate("[", stop="balance")
    symbols = AutomatonTask(
        name="any",
        symbols=["a", "b"],
        start=0,
        moves=lambda _: {"a": 0, "b": 0},
        train_lengths=[2],
        long_lengths=[2, 3],
    )
    with pytest.raises(ValueError, match=r'generate\(stop="balanced"\) is of Dyck languages'):
        build_model(get_config("gpt", symbols)).generate("a", stop="balanced")


def test_arguments_of_transformer_lens_are_taken(random_model):
    model = random_model("gpt")
    plain = model.generate("[(", 4, do_sample=False)
    for cached in (True, False):
        for side in ("left", None):
            same = {"use_past_kv_cache": cached, "padding_side": side, "do_sample": False}
            assert model.generate("[(", 4, **same) == plain
    with pytest.raises(ValueError, match=r"padding_side must be 'left'.*, not 'right'"):
        model.generate("[(", 4, padding_side="right")
    logits, loss = both = model("[()]", return_type="both")
    assert torch.equal(both.logits, logits)
    assert torch.equal(logits, model("[()]", past_kv_cache=None))
    assert torch.equal(both.loss, loss)
    assert torch.equal(loss, model("[()]", return_type="loss"))
    with pytest.raises(ValueError, match="give None"):
        model("[()]", past_kv_cache=object())
