from cluster.node.leases import MS, STALE_MAX, Leases


def test_countdowns_end_in_order_and_are_handed_out_once() -> None:
    leases = Leases()
    leases.start("b", 2, 500, now=0)
    leases.start("a", 1, 300, now=0)
    assert leases.deadline() == 300 * MS
    assert leases.due(299 * MS) == []
    assert [due.token for due in leases.due(500 * MS)] == [1, 2]
    assert leases.due(500 * MS) == []


def test_a_new_leader_gets_again_what_the_old_one_proposed_in_vain() -> None:
    leases = Leases()
    leases.start("a", 1, 300, now=0)
    assert leases.due(300 * MS)
    leases.restart_due()
    assert [due.token for due in leases.due(301 * MS)] == [1]


def test_a_lock_that_is_gone_never_comes_due() -> None:
    leases = Leases()
    leases.start("a", 1, 300, now=0)
    leases.start("a", 2, 900, now=0)
    leases.end(1)
    assert leases.deadline() == 900 * MS
    assert [due.token for due in leases.due(1000 * MS)] == [2]


def test_a_node_that_never_asks_does_not_collect_countdowns_for_ever() -> None:
    leases = Leases()
    for token in range(10 * STALE_MAX):
        leases.start("a", token, 300, now=0)
        leases.end(token)
    assert len(leases._heap) <= STALE_MAX + 1
