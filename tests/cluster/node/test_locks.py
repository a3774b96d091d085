"""The lock state machine gives exactly the results of its specification."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.node.commands import (
    Expire,
    Expired,
    Grant,
    Granted,
    GrantRejected,
    Noop,
    NotFound,
    NothingDone,
    Release,
    Released,
)
from cluster.node.locks import LockTable


def test_every_command_and_every_result() -> None:
    table = LockTable()
    steps = [
        (Grant("a", 1000), Granted(1)),
        (Grant("a", 1000), GrantRejected()),
        (Grant("b", 1000), Granted(2)),
        (Expire("a", 2), Expired(existed=False)),
        (Release("a"), Released()),
        (Release("a"), NotFound()),
        (Expire("a", 1), Expired(existed=False)),
        (Grant("a", 1000), Granted(3)),
        (Expire("a", 1), Expired(existed=False)),
        (Expire("a", 3), Expired(existed=True)),
        (Expire("a", 3), Expired(existed=False)),
        (Noop(), NothingDone()),
    ]
    for command, result in steps:
        assert table.apply(command) == result
    assert table.holder("a") is None
    assert table.holder("b") == 2


keys = st.sampled_from("ab")
commands = st.one_of(
    st.builds(Grant, keys, st.just(1000)), st.builds(Release, keys), st.builds(Expire, keys, st.integers(1, 5))
)


@given(st.lists(commands))
def test_tokens_are_dense_and_a_copy_goes_its_own_way(script: list[Grant | Release | Expire]) -> None:
    table, tokens = LockTable(), []
    for command in script:
        before = table.copy()
        result = table.apply(command)
        assert before.copy().apply(command) == result
        if isinstance(result, Granted):
            tokens.append(result.token)
            assert table.holder(command.key) == result.token
        if isinstance(result, Expired) and result.existed:
            assert isinstance(command, Expire)
            assert before.holder(command.key) == command.token
    assert tokens == list(range(1, len(tokens) + 1))
