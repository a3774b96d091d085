"""Scenarios: what is run, disturbed, checked and expected; one YAML file each, validated before anything starts.

scenario = load(path)                     # raises ScenarioError with everything that is wrong with the file
scenario = read(path)                     # what the file says, whether or not it can be run here
scenario = override(scenario, seed=7)     # what the command line says instead, validated anew
text = dump(scenario)                     # YAML that load reads back as an equal scenario
scenario.expect.met_by(results)           # whether a run did what its scenario expects
"""

from fencepost.scenario.model import Expectation, Scenario
from fencepost.scenario.reader import load, override, read
from fencepost.scenario.rules import resolved
from fencepost.scenario.writer import dump
from fencepost.yaml_file import Problem, ScenarioError

__all__ = ["Expectation", "Problem", "Scenario", "ScenarioError", "dump", "load", "override", "read", "resolved"]
