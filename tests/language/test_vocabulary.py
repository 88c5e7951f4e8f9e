import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign import LANGUAGE, VOCABULARY, theirs
from tl_dyck import DyckLanguage, Vocabulary, build_tokenizer


def test_a_mapping_and_a_sequence_say_the_same():
    assert Vocabulary(LANGUAGE, [4, 5, 2, 3], bos=1, padding=0) == VOCABULARY
    assert repr(VOCABULARY) == "Vocabulary([ 4, ] 5, ( 2, ) 3, BOS 1, padding 0)"
    assert VOCABULARY.ids == (4, 5, 2, 3, 1)


@given(st.text("[]()", max_size=12), st.integers(0, 3))
def test_text_by_hand_and_by_the_maps(text, filling):
    ours = torch.tensor([4, *("[]()".index(bracket) for bracket in text), *[4] * filling])
    user = torch.tensor([*theirs(text), *[0] * filling])
    assert VOCABULARY.to_model(ours[None])[0].tolist() == user.tolist()
    assert VOCABULARY.to_ours(user).tolist() == ours.tolist()


@given(st.permutations(range(9)), st.integers(1, 3))
def test_there_and_back_whatever_the_ids(ids, k):
    language = DyckLanguage(k, 2)
    vocabulary = Vocabulary(language, ids[: 2 * k], bos=ids[2 * k])
    tokens = torch.arange(language.d_vocab).expand(2, -1)
    assert torch.equal(vocabulary.to_ours(vocabulary.to_model(tokens)), tokens)
    order = vocabulary.order(9).tolist()
    assert sorted(order) == list(range(9))
    assert order[: 2 * k + 1] == list(ids[: 2 * k + 1])


def test_ids_of_a_tokenizer():
    tokenizer = build_tokenizer(DyckLanguage(3, 4, ["{", "}", "[", "]", "(", ")"]))
    read = Vocabulary.of_tokenizer(LANGUAGE, tokenizer)
    assert read.ids == (2, 3, 4, 5, 6)
    assert read.padding == 6


def test_ids_are_of_any_integers_and_cost_nothing_however_large():
    for dtype in (torch.int64, torch.int32, torch.int16):
        ids = torch.tensor([1, 4, 2, 3, 5, 0, 0], dtype=dtype)
        assert VOCABULARY.to_ours(ids).tolist() == [4, 0, 2, 3, 1, 4, 4]
    big = Vocabulary(DyckLanguage(1, 1), (2**40, 7), bos=2**41)
    assert big.to_ours(torch.tensor([2**41, 2**40, 7])).tolist() == [2, 0, 1]
