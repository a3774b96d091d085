"""Hand-written histories, one for each thing that can be wrong with a lock, and for what only looks wrong."""

from __future__ import annotations

#: name -> script. The verdicts are in golden/verdicts.json, made by the exhaustive search.
SCRIPTS: dict[str, str] = {
    "quiet-hand-over": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 ok
        2 acquire a
        2 ok 2
        """,
    "expired-then-granted": """
        1 acquire a
        1 ok 1
        2 acquire a
        2 ok 2
        1 release a 1
        1 fail not-held
        """,
    "token-granted-twice": """
        1 acquire a
        2 acquire a
        1 ok 1
        2 ok 1
        """,
    "token-released-twice": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 ok
        1 release a 1
        1 ok
        """,
    "tokens-go-back": """
        1 acquire a
        1 ok 2
        1 release a 2
        1 ok
        2 acquire a
        2 ok 1
        """,
    "tokens-of-overlapping-grants-in-any-order": """
        1 acquire a
        2 acquire a
        1 ok 2
        2 ok 1
        """,
    "tokens-go-back-on-another-key": """
        1 acquire a
        1 ok 2
        2 acquire b
        2 ok 1
        """,
    "refused-while-free": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 ok
        2 acquire a
        2 fail held
        3 acquire a
        3 ok 2
        """,
    "refused-by-nobody": """
        1 acquire a
        1 fail held
        """,
    "refused-by-a-ghost": """
        9 acquire a
        9 info
        1 acquire a
        1 fail held
        """,
    "refused-before-the-ghost": """
        1 acquire a
        1 fail held
        9 acquire a
        9 info
        """,
    "two-refusals-two-frees-one-ghost": """
        9 acquire a
        9 info
        1 acquire a
        1 fail held
        1 inspect a
        1 ok null
        1 acquire a
        1 fail held
        """,
    "free-while-released-only-later": """
        1 acquire a
        1 ok 1
        2 inspect a
        2 ok null
        1 release a 1
        1 ok
        """,
    "not-held-while-held": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 fail not-held
        2 inspect a
        2 ok 1
        """,
    "stale-read": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 ok
        2 acquire a
        2 ok 2
        3 inspect a
        3 ok 1
        """,
    "read-from-nowhere": """
        1 inspect a
        1 ok 7
        """,
    "read-of-an-unknown-grant": """
        9 acquire a
        1 inspect a
        1 ok 7
        """,
    "two-tokens-for-one-unknown-grant": """
        9 acquire a
        1 inspect a
        1 ok 7
        1 inspect a
        1 ok 8
        """,
    "stolen-by-a-retried-release": """
        1 acquire a
        1 ok 1
        1 release a 1
        1 info
        2 acquire a
        2 ok 2
        3 acquire a
        3 ok 3
        2 release a 2
        2 ok
        """,
    "renewed-after-another-grant": """
        1 acquire a
        1 ok 1
        2 acquire a
        2 ok 2
        1 renew a 1
        1 ok
        """,
    "renewal-refused-while-held": """
        1 acquire a
        1 ok 1
        1 renew a 1
        1 fail not-held
        1 release a 1
        1 ok
        """,
    "unknown-release-between": """
        1 acquire a
        1 ok 1
        1 release a 1
        2 inspect a
        2 ok null
        3 inspect a
        3 ok null
        """,
    "ghost-used-up-by-a-token": """
        8 acquire a
        8 info
        1 acquire a
        1 fail held
        1 inspect a
        1 ok null
        2 acquire a
        2 ok 3
        2 release a 3
        2 ok
        3 inspect a
        3 ok 5
        """,
}
