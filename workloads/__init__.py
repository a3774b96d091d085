"""What the clients do: generators that say it, and what carries it out.

spec           a scenario's workload as data
kinds          the kinds of workload by name; `kinds.build` makes one
generator      what a generator is; combinators, threads, clients: how they are made
dispatch       who is free, who is which process; driven by interpreter (real time) and simulate (virtual time)
"""
