"""From a scenario to YAML."""

from __future__ import annotations

from typing import Any

import yaml

from fencepost.quantities import (
    NS_PER_MS,
    format_duration,
    format_range_ms,
    format_rate,
    format_size,
    format_speed,
    format_step,
)
from fencepost.scenario.model import RECOVER_ALL, SETTLE_NOTHING, Expectation, Scenario
from nemesis.kinds import Form, parameters
from nemesis.spec import FaultSpec
from workloads import kinds
from workloads.spec import Step, WorkloadSpec


def dump(scenario: Scenario) -> str:
    """The scenario as YAML that `load` reads back as an equal one."""
    plain: dict[str, Any] = {"name": scenario.name, "system": scenario.system}
    if scenario.mutant is not None:
        plain["mutant"] = scenario.mutant
    plain["place"] = scenario.place
    if scenario.hosts is not None:
        plain["hosts"] = scenario.hosts
    plain |= {
        "nodes": scenario.nodes,
        "seed": scenario.seed,
        "time_limit": format_duration(scenario.time_limit_ns),
        "assumptions": _assumptions(scenario),
        "workload": _workload(scenario.workload),
        "nemesis": [_fault(spec) for spec in scenario.nemesis],
        **({} if scenario.recovery == RECOVER_ALL else {"recovery": scenario.recovery}),
        "checks": list(scenario.checks),
        "coverage": dict(scenario.coverage),
        "expect": _expectation(scenario.expect),
    }
    return "".join(_line(name, value) for name, value in plain.items())


def _expectation(expect: Expectation) -> Any:
    if expect.invalid:
        return {"invalid": list(expect.invalid)}
    return {"excused": list(expect.excused)} if expect.excused else "valid"


def _line(name: str, value: Any) -> str:
    """One field as people write it: on one line, except for faults, which have one each."""
    if name == "nemesis" and value:
        return "nemesis:\n" + "".join(f"  - {_flow(fault)}" for fault in value)
    if name == "workload" and "steps" in value:
        fields = "".join(f"  {_flow({field: said}, braces=False)}" for field, said in value.items() if field != "steps")
        return f"workload:\n{fields}  steps:\n" + "".join(f"    - {_flow(step)}" for step in value["steps"])
    return f"{name}: {_flow(value)}" if isinstance(value, dict | list) else _flow({name: value}, braces=False)


def _flow(value: Any, *, braces: bool = True) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=braces, sort_keys=False, allow_unicode=True, width=10_000)
    return text


def _assumptions(scenario: Scenario) -> dict[str, Any]:
    late = {} if scenario.late_ns is None else {"late": format_duration(scenario.late_ns)}
    settle = {} if scenario.settle else {"settle": SETTLE_NOTHING}
    changes = {} if scenario.leader_changes_max is None else {"leader_changes": scenario.leader_changes_max}
    return {"clock_error": scenario.clock_error, **late, **changes, **settle}


def _workload(spec: WorkloadSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": spec.kind,
        "clients": spec.clients,
        "keys": spec.keys,
        "rate": format_rate(spec.rate),
        "lease": format_duration(spec.lease_ms * NS_PER_MS),
        "hold": format_range_ms(spec.hold_ms),
        "wait": format_duration(spec.wait_ms * NS_PER_MS),
        "overrun": spec.overrun,
        "reads": spec.reads,
        "timeout": format_duration(spec.timeout_ms * NS_PER_MS),
    }
    if spec.operations is not None:
        plain["operations"] = spec.operations
    if kinds.uses_resource(spec.kind):
        plain["write_delay"] = format_range_ms(spec.write_delay_ms)
    if spec.steps is not None:
        plain["steps"] = [_step(step) for step in spec.steps]
    return plain


def _step(step: Step) -> dict[str, Any]:
    plain = {"at": format_duration(step.at_ns), "client": step.client, "do": step.do, "key": step.key}
    if step.value:
        plain["value"] = dict(step.value)
    if step.grant is not None:
        plain["grant"] = step.grant
    return plain


def _fault(spec: FaultSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {"fault": spec.fault}
    if spec.shape is not None:
        plain["shape"] = spec.shape
    if spec.target is not None:
        plain["target"] = spec.target if isinstance(spec.target, str) else list(spec.target)
    if spec.cuts is not None:
        plain["cuts"] = [list(link) for link in spec.cuts]
    for name, ns in (("at", spec.at_ns), ("every", spec.every_ns), ("for", spec.for_ns)):
        if ns is not None:
            plain[name] = format_duration(ns)
    forms = {name: parameter.form for name, parameter in parameters(spec.fault).items()}
    plain |= {name: _option(forms[name], value) for name, value in spec.options}
    if spec.when is not None:
        plain["when"] = {"log": spec.when.log} if spec.when.log is not None else {"counter": spec.when.counter}
        if spec.when.grows != 1:
            plain["when"]["grows"] = spec.when.grows
        if spec.when.after_ns:
            plain["when"]["after"] = format_duration(spec.when.after_ns)
    return plain


def _option(form: Form, value: Any) -> Any:
    match form:
        case Form.SPAN:
            return format_range_ms(value)
        case Form.STEP:
            return format_step(value)
        case Form.SPEED:
            return format_speed(value)
        case Form.MEMORY:
            return format_size(value)
        case Form.KINDS:
            return list(value)
    return value
