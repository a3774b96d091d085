"""Disturbances: what a scenario may ask for, when it happens, to whom, how it is done, shown and undone.

spec        what a scenario may ask for, and whether a cluster can be asked for it
schedule    from specs and a seed to planned injections
targets     who is hit; shapes: which links a partition cuts
family      what every kind of fault does; families: all of them, one module each
ledger      what is to be undone, on disk
conductor   the nemesis itself
monitor     who leads, and what the nodes count, while the run goes on

planned = schedule.plan(scenario.nemesis, scenario.seed, scenario.time_limit_ns)
nemesis = conductor.Nemesis(place, planned, record=writer.append, ledger=ledger.Ledger(path), clock=clock,
                            time_limit_ns=scenario.time_limit_ns)
await nemesis.run()         # heals all it did, however it ends
nemesis.resolved()          # what was really done, for repro.yaml
"""
