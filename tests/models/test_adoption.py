import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.foreign import LANGUAGE, SHAPES, VOCABULARY, foreign, theirs
from tl_dyck import (
    AutomatonTask,
    DyckLanguage,
    Vocabulary,
    VocabularyError,
    VocabularyWarning,
    adopt,
    balance_violation,
    build_model,
    build_tokenizer,
    certify_dyck,
    certify_language,
    export_rnn,
    finetuned_importance,
    frozen_importance,
    get_config,
    head_truths,
    leave_one_out_importance,
    load_model,
    load_task,
    measure_heads,
    parse_space,
    prove_language,
    sample_error,
    save_model,
    stack_likeness,
)
from tl_dyck.ablation import log_likelihood
from tl_dyck.certify import certify
from tl_dyck.models.foreign import NotCarriedError
from tl_dyck.report import widgets
from tl_dyck.tasks import accuracy_on, counted_accuracy, nats_over_law

TASK = load_task("dyck-2-4")
TEXT = "[(())]()"


@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_the_model_computes(shape):
    model = foreign(shape)
    mine = adopt(model, VOCABULARY)
    logits, cache = model.run_with_cache(torch.tensor([theirs(TEXT)]))
    found, kept = mine.run_with_cache(TEXT)
    order = [4, 5, 2, 3, 1, 0, 6, 7]  # ours are [ ] ( ) BOS, then what is left
    torch.testing.assert_close(found, logits[..., order], rtol=1e-5, atol=1e-5)
    assert set(kept) == set(cache)
    for name in cache:
        told = cache[name][..., order] if name == "unembed.hook_out" else cache[name]
        torch.testing.assert_close(kept[name], told, rtol=1e-5, atol=1e-5)
    assert mine.to_str_tokens(TEXT) == ["<bos>", *TEXT]


def test_the_model_itself_is_left_alone():
    model = foreign("attn-only")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mine = adopt(model, VOCABULARY)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not hasattr(model.cfg, "language")
    assert model.tokenizer is None


def test_hooks_come_along():
    model = foreign("attn-only")
    model.add_perma_hook("blocks.1.attn.hook_z", lambda z, hook: 0 * z)
    _, cache = adopt(model, VOCABULARY).run_with_cache(TEXT)
    assert not cache["blocks.1.attn.hook_z"].any()
    assert cache["blocks.0.attn.hook_z"].any()


@pytest.mark.parametrize(
    "measure",
    [
        TASK.closing_accuracy,
        lambda model: stack_likeness(model, TASK),
        lambda model: stack_likeness(model, torch.tensor([theirs(TEXT)])),
        lambda model: balance_violation(model, TASK, first_layer="means", head=0),
        lambda model: measure_heads(model, TASK),
        lambda model: finetuned_importance(model, TASK),
        lambda model: certify_dyck(model, TASK),
        lambda model: certify_dyck(export_rnn(model), TASK),
        lambda model: certify_language(model, TASK, 4),
        lambda model: certify_language(export_rnn(model), TASK, 4),
        lambda model: certify(model, [2, 4], None, parse_space("pairs:1", language=LANGUAGE)),
        lambda model: widgets.attention(model, TEXT),
        lambda model: head_truths(model, TASK, 4),
        lambda model: counted_accuracy(TASK, model),
        lambda model: nats_over_law(TASK, model),
        lambda model: sample_error(model, TASK, 4),
        lambda model: prove_language(model, TASK, 4),
        lambda model: leave_one_out_importance(model, TASK),
    ],
)
@pytest.mark.parametrize("d_vocab", [8, 60])
def test_unknown_ids_are_refused_and_never_measured(measure, d_vocab):
    with pytest.raises(VocabularyError, match=r"adopt\(model, Vocabulary\(language"):
        measure(foreign("one-layer", d_vocab=d_vocab))


def test_as_many_ids_as_ours_are_not_ours_until_somebody_says_so():
    model = foreign("one-layer", d_vocab=5)
    with pytest.raises(VocabularyError, match=r"Vocabulary\.ours\(language\)"):
        TASK.closing_accuracy(model)
    mine = adopt(model, Vocabulary.ours(LANGUAGE))
    tokens = mine.to_tokens(TEXT)
    assert torch.equal(mine(tokens), model(tokens))
    assert stack_likeness(model, tokens, language=LANGUAGE).mass == pytest.approx(
        stack_likeness(mine, tokens).mass
    )


def test_what_a_function_returns_is_looked_at():
    with pytest.raises(VocabularyError, match=r"returned \[100, 26, 4\]"):
        TASK.closing_accuracy(lambda tokens: torch.zeros(*tokens.shape, 4))
    with pytest.raises(VocabularyError, match=r"returned \[\]"):
        TASK.closing_accuracy(lambda tokens: torch.zeros(()))


@pytest.mark.parametrize(
    "measure",
    [
        TASK.closing_accuracy,
        lambda model: counted_accuracy(TASK, model),
        lambda model: nats_over_law(TASK, model),
        lambda model: accuracy_on(model, [TEXT], TASK),
    ],
)
def test_more_logits_than_tokens_are_not_read_by_our_ids(measure):
    """Of a module that says nothing of its ids, as of a function, logits can only be counted."""
    plain = nn.Embedding.from_pretrained
    for model in (plain(torch.eye(9)), lambda tokens: torch.zeros(*tokens.shape, 6)):
        with pytest.raises(VocabularyError, match=r"logits for the 5 .* which; pass tl_dyck.adopt"):
            measure(model)
    measure(plain(torch.eye(5)))


def test_another_language_is_refused():
    model = adopt(foreign("one-layer"), VOCABULARY)
    with pytest.raises(VocabularyError, match="2 types of brackets, not 3"):
        load_task("dyck-3-4").closing_accuracy(model)
    with pytest.raises(VocabularyError, match="2 types of brackets, not 3"):
        load_task("dyck-3-4").closing_accuracy(build_model(get_config("gpt", TASK)))
    with pytest.raises(VocabularyError, match="the RNN's tokens"):
        certify_dyck(export_rnn(model), load_task("dyck-3-4"))


def test_a_tokenizer_is_asked_and_may_object():
    language = DyckLanguage(3, 4, ["{", "}", "[", "]", "(", ")"])
    model = foreign("attn-only")
    model.set_tokenizer(build_tokenizer(language))
    mine = adopt(model, LANGUAGE)
    expected = model("[()]")[..., [2, 3, 4, 5, 6]]
    torch.testing.assert_close(mine("[()]")[..., :5], expected)
    with pytest.raises(VocabularyError, match=r"tokenizer says that '\[' is id 2"):
        adopt(model, VOCABULARY)


def test_what_cannot_be_adopted():
    with pytest.raises(VocabularyError, match="id 5 is not in a vocabulary of d_vocab=4"):
        adopt(foreign("attn-only", d_vocab=4), VOCABULARY)
    with pytest.raises(VocabularyError, match="no tokenizer to ask"):
        adopt(foreign("attn-only"), LANGUAGE)
    with pytest.raises(VocabularyError, match="are known"):
        adopt(build_model(get_config("gpt", TASK)), VOCABULARY)
    with pytest.raises(TypeError, match="or a folder of one, not Identity"):
        adopt(torch.nn.Identity(), VOCABULARY)
    with pytest.raises(TypeError, match="a Vocabulary or a DyckLanguage, got"):
        adopt(foreign("attn-only"), {"[": 1})
    broken = foreign("three-layers")
    with torch.no_grad():
        broken.blocks[1].mlp.W_in[0, 3] = math.nan
    with pytest.raises(ValueError, match=r"weight blocks.1.mlp.W_in holds nan or infinite"):
        adopt(broken, VOCABULARY)


def test_a_classifier_keeps_its_classes():
    model = foreign("one-layer", d_vocab_out=2)
    mine = adopt(model, VOCABULARY)
    torch.testing.assert_close(mine(TEXT), model(torch.tensor([theirs(TEXT)])))
    with pytest.raises(VocabularyError, match=r"which of the 2 logits of this model are of the 4"):
        TASK.closing_accuracy(mine)


# --- logits that are not one for each id ----------------------------------------------------------


def with_outputs(outputs: list[int | None]) -> Any:
    """A model of ids 0 to 7 and one whose logits are of these ids; the same where they are."""
    whole = foreign("one-layer")
    model = foreign("one-layer", d_vocab_out=len(outputs))
    kept = {name: w for name, w in whole.state_dict().items() if "unembed" not in name}
    model.load_state_dict({**model.state_dict(), **kept})
    with torch.no_grad():
        for logit, token in enumerate(outputs):
            model.unembed.W_U[:, logit] = 0.0 if token is None else whole.unembed.W_U[:, token]
            model.unembed.b_U[logit] = -90.0 if token is None else whole.unembed.b_U[token]
        for token in {*range(8)} - {*outputs}:  # so that what has no logit is never predicted
            whole.unembed.W_U[:, token], whole.unembed.b_U[token] = 0.0, -90.0
    return whole, model


def test_what_can_be_predicted_comes_first(tmp_path):
    """What such models say, and what is decided of them, is held to brute force in test_doors."""
    for outputs, predicts in (
        ([None, 5, 4, 3, 2, None, 1, 0, 7, 6], 8),  # dead ones
        ([0, 1, 2, 3, 4, 5], 5 + 1),  # 6 and 7 are never predicted
        ([5, 2, 4, 3], 4),  # nothing but brackets
        ([7, 5, 2, 4, 3, None], 4),  # no BOS
        ([None, 5, 2, 4, 3, 0, 6, 7], 4),  # as many as ids, and of others
    ):
        whole, model = with_outputs(outputs)
        mine = adopt(model, VOCABULARY, outputs=outputs)
        again = load_model(save_model(mine, tmp_path / str(predicts)), device="cpu")
        assert mine.cfg.predicts == again.cfg.predicts == predicts
        wanted = adopt(whole, VOCABULARY)(TEXT)[..., :4]
        torch.testing.assert_close(again(TEXT)[..., :4], wanted)


@pytest.mark.parametrize(
    ("d_vocab_out", "outputs", "said"),
    [
        (10, None, "10 logits for 8 ids, and nothing says which is of which; pass outputs"),
        (6, None, "6 logits for 8 ids, and nothing says which is of which; pass outputs"),
        (10, range(8), "each of the 10 logits which id it is of, None if of none, but 8 are given"),
        (5, [1, 2, 3, 4, 5, None], "each of the 5 logits .* but more are given"),
        (5, [5, 4, 3, 2, 8], "id of outputs must be at most 7, got 8"),
        (5, [5, 4, 3, 2, -1], "id of outputs must be at least 0, got -1"),
        (5, [5, 4, 3, 2, 2], "outputs gives id 2 to logits 3 and 4"),
        (5, [5, 4, 3, 1, None], r"outputs has no logit of '\(', id 2"),
    ],
)
def test_outputs_that_cannot_be(d_vocab_out, outputs, said):
    with pytest.raises(ValueError, match=said):
        adopt(foreign("one-layer", d_vocab_out=d_vocab_out), VOCABULARY, outputs=outputs)


@pytest.mark.parametrize("outputs", ["24", 3, {1, 2}, [1.5, 2, 3, 4, 5]])
def test_outputs_are_ids_one_after_the_other(outputs):
    with pytest.raises(TypeError):
        adopt(foreign("one-layer", d_vocab_out=5), VOCABULARY, outputs=outputs)


@pytest.mark.parametrize("d_vocab_out", [2, 5, 8])
def test_logits_of_classes_are_no_tokens(d_vocab_out):
    """As many of them as ids, or fewer: whoever reads them by token says so."""
    model = foreign("one-layer", d_vocab_out=d_vocab_out)
    mine = adopt(model, VOCABULARY, outputs=())
    torch.testing.assert_close(mine(TEXT), model(torch.tensor([theirs(TEXT)])))
    for measure in (
        TASK.closing_accuracy,
        lambda model: certify_language(model, TASK, 4),
        lambda model: certify_language(export_rnn(model), TASK, 4),
        lambda model: certify_dyck(model, TASK),
        lambda model: head_truths(model, TASK, 4),
        lambda model: prove_language(model, TASK, 4),
        lambda model: measure_heads(model, TASK),
    ):
        with pytest.raises(VocabularyError, match=f"which of the {d_vocab_out} logits"):
            measure(mine)
    assert stack_likeness(mine, TASK, n=5).n_queries  # which reads no logit


@pytest.mark.filterwarnings("ignore::tl_dyck.VocabularyWarning")
def test_models_agree_only_on_logits_that_are_known_to_be_of_the_same():
    _, few = with_outputs([5, 2, 4, 3])
    _, more = with_outputs([None, 5, 2, 4, 3])
    few, more = adopt(few, VOCABULARY, outputs=[5, 2, 4, 3]), adopt(
        more, VOCABULARY, outputs=[None, 5, 2, 4, 3]
    )  # fmt: skip
    assert certify_language(few, TASK, 3, "agree", other=few).status == "proved"
    with pytest.raises(ValueError, match="the 4 logits of one model and the 5 of the other"):
        certify_language(few, TASK, 3, "agree", other=more)
    two = [foreign("no-norm", d_vocab_out=n) for n in (4, 5)]
    with torch.no_grad():
        for each in two:
            each.pos_embed.W_pos.zero_()
    outputs = [5, 2, 4, 3, None]
    few, more = (adopt(each, VOCABULARY, outputs=outputs[: each.cfg.d_vocab_out]) for each in two)
    with pytest.raises(ValueError, match="the 4 logits of one model and the 5 of the other"):
        prove_language(few, TASK, 2, "agree", other=more)


def test_what_has_no_logit_cannot_be_predicted():
    _, model = with_outputs([5, 2, 4, 3])
    mine = adopt(model, VOCABULARY, outputs=[5, 2, 4, 3])
    tokens = torch.tensor([[4, 0, 2, 6, 1]])  # 6 is none of the language
    with pytest.raises(ValueError, match="token 6 is to be predicted, but only the first 4"):
        frozen_importance(mine, tokens)
    with pytest.raises(ValueError, match="token 4 is to be predicted, but only the first 4"):
        log_likelihood(torch.zeros(1, 3, 4), torch.tensor([[0, 4, 1]]))


def test_other_tokens_still_compete():
    model = foreign("one-layer")
    with torch.no_grad():
        model.unembed.b_U[7] = 1e6  # always predicts what is no bracket
    found = TASK.closing_accuracy(adopt(model, VOCABULARY), n=20)
    assert found.any_token == 0.0 < found.closing_only


# --- ids that are named wrongly -------------------------------------------------------------------


def predicting(chances: dict[int, float], **fields: Any) -> Any:
    """A model of the user's ids that predicts by these odds, whatever it reads."""
    model = foreign("one-layer", **fields)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(math.log(1e-6))
        for token, chance in chances.items():
            model.unembed.b_U[token] = math.log(chance)
    return model


FIRST = {2: 0.5, 4: 0.5}  # ( and [, as theirs are: 1/k each, and hardly anything else


def test_a_model_that_reads_as_it_learned_does_not_warn():
    adopt(predicting(FIRST), VOCABULARY)
    adopt(predicting({**FIRST, 3: 0.4, 5: 0.4}), VOCABULARY)  # has not learned what comes first
    adopt(predicting({2: 0.98, 3: 0.005, 5: 0.005, 4: 0.01}), VOCABULARY)
    adopt(predicting({7: 1.0}), VOCABULARY)  # a token that is no bracket may come, for all we know
    classes = predicting({3: 0.3, 5: 0.3}, d_vocab_out=6, d_vocab=8)
    adopt(classes, VOCABULARY, outputs=())
    adopt(foreign("bidirectional"), VOCABULARY)


@pytest.mark.parametrize(
    ("ids", "closing", "opening", "share"),
    [
        ({"(": 3, ")": 2, "[": 4, "]": 5}, r"\)", r"\(", "50%"),  # one pair swapped
        ({"(": 2, ")": 3, "[": 5, "]": 4}, r"\]", r"\[", "50%"),
        ({"(": 3, ")": 4, "[": 5, "]": 2}, r"[\])]", r"[\[(]", "50%"),  # across types
    ],
)
def test_a_swapped_vocabulary_warns(ids, closing, opening, share):
    said = rf"gives '{closing}', which no string begins with, {share}, and '{opening}'"
    with pytest.warns(VocabularyWarning, match=said + r".*check the ids"):
        adopt(predicting(FIRST), Vocabulary(LANGUAGE, ids, bos=1, padding=0))


@pytest.mark.parametrize(("never", "rarest", "warns"), [
    (0.26, 0.0025, True),  # at least half of the likeliest, and a hundred times the rarest
    (0.24, 0.0020, False),
    (0.26, 0.0030, False),
])  # fmt: skip
def test_where_the_warning_begins(never, rarest, warns):
    odds = {4: 0.5, 2: rarest, 3: never}
    odds[7] = 1.0 - sum(odds.values()) - 3e-6
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        adopt(predicting(odds), VOCABULARY)
    assert sum(each.category is VocabularyWarning for each in said) == warns


def test_untrained_models_do_not_warn():
    for seed in range(20):
        model = build_model(get_config("gpt", TASK, n_layers=1, n_ctx=40), seed)
        plain = foreign("three-layers", n_layers=1, d_model=50, d_head=50, n_heads=1, d_mlp=50,
                        act_fn="relu", d_vocab=5)  # fmt: skip
        plain.load_state_dict(model.state_dict())
        adopt(plain, Vocabulary.ours(LANGUAGE))


def letters(first: Callable[[str], dict[str, str]]) -> Any:
    return AutomatonTask(
        name="letters", symbols=("a", "b", "c"), start="s", moves=first, train_lengths=(2,),
        long_lengths=(2, 2),
    )  # fmt: skip


def test_of_an_automaton_the_task_knows_what_may_come_first():
    """The words are aa and ca; of the model, first come a and b, which is c by its ids."""
    task = letters(lambda state: {"a": "e", "c": "e"} if state == "s" else {"a": "e"})
    model = adopt(predicting({2: 0.5, 3: 0.5}), Vocabulary(task.language, (2, 3, 4), bos=1))
    for measure in (counted_accuracy, nats_over_law):
        with pytest.warns(VocabularyWarning, match="gives 'b', which no string .* and 'c', which"):
            measure(task, model, n=5)
    right = adopt(predicting({2: 0.5, 3: 0.5}), Vocabulary(task.language, (2, 4, 3), bos=1))
    for measure in (counted_accuracy, nats_over_law):
        measure(task, right, n=5)


@pytest.mark.global_rng  # transformers draws its weights
@pytest.mark.parametrize("hugging", [True, False], ids=["of transformers", "another module"])
def test_the_call_for_another_model_can_be_made(hugging: bool) -> None:
    """As the message says it, with what a reader has: the model, its vocabulary and a task."""
    task = load_task("dyck-2-4")
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 64, "vocab_size": 50}
    gpt: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()
    if hugging:  # of another kind, for a GPT-2 comes in
        shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "ffn_dim": 8}
        shape |= {"max_position_embeddings": 128, "vocab_size": 50}
        gpt = transformers.OPTForCausalLM(transformers.OPTConfig(**shape)).eval()

    class Plain(torch.nn.Module):
        def forward(self, tokens: Any) -> Any:
            return gpt(tokens).logits

    model = gpt if hugging else Plain()
    ids = [40, 7, 12, 3]
    vocabulary = Vocabulary(task.language, brackets=ids, bos=30)
    with pytest.raises((TypeError, NotCarriedError)) as raised:
        adopt(model, vocabulary)
    (call,) = re.findall(r"task\.closing_accuracy\(.*\)", str(raised.value))
    found = eval(call, {"task": task, "model": model, "vocabulary": vocabulary})

    def by_hand(tokens: Any) -> Any:
        of = torch.tensor([*ids, 30])
        return gpt(of[tokens]).logits[..., of]

    assert found.any_token == task.closing_accuracy(by_hand).any_token
