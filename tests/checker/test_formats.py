"""Other tools' histories: what is read, what is filled in, what is refused and where, and what goes back out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checker
from checker import HistoryError, Verdict, search
from checker.formats import Format, Names, Target, calls, detect, edn, export, lint, read_records, to_events
from checker.history import History
from tests.checker import generate, script

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True).map(edn.Keyword),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


class TestEdn:
    @given(values)
    def test_what_is_written_is_read_again(self, value: Any) -> None:
        assert [found for _, found in edn.read_all(edn.write(value))] == [value]

    def test_everything_that_jepsen_writes(self) -> None:
        text = """
        ; a comment
        #jepsen.history.Op{:index 0, :time 12, :type :invoke, :process 3, :f :acquire, :value nil}
        {:a #{1 2}, "b" (1 2), :c #inst "2024-01-01", :d \\a, :e 1.5M :f 12N, #_ :gone #_[x] :g -1e3}
        #_ {:dropped 1} [:x #:ns{:y true}] ##Inf \\newline sym
        """
        found = list(edn.read_all(text))
        assert found[0] == (3, {"index": 0, "time": 12, "type": "invoke", "process": 3, "f": "acquire", "value": None})
        assert found[1] == (
            4,
            {"a": [1, 2], "b": [1, 2], "c": "2024-01-01", "d": "a", "e": 1.5, "f": 12, "g": -1000.0},
        )
        assert [value for _, value in found[2:]] == [["x", {"y": True}], float("inf"), "\n", "sym"]
        assert isinstance(found[0][1]["f"], edn.Keyword)

    @pytest.mark.parametrize(
        ("text", "line", "problem"),
        [
            ("{:a 1\n:b}", 1, "a key that has no value"),
            ("[1\n2)", 2, "closes the '\\['"),
            ("1\n}", 2, "closes nothing"),
            ("1\n{:a {", 2, "never closed"),
            ('1\n"abc', 2, "without an end"),
            ("1\n\n1x", 3, "is no number"),
            ("\n\\", 2, "unexpected"),
        ],
    )
    def test_what_is_wrong_and_where(self, text: str, line: int, problem: str) -> None:
        with pytest.raises(HistoryError, match=problem) as raised:
            list(edn.read_all(text))
        assert raised.value.line == line

    def test_depth_is_no_matter(self) -> None:
        depth = 100_000
        ((_, value),) = edn.read_all("[" * depth + "]" * depth)
        while value:
            (value,) = value
        assert value == []


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "history"
    path.write_text(text)
    return path


HAZELCAST = """\
{:type :invoke, :f :acquire, :process 0, :time 10, :index 0, :value {:client "c0"}}
{:type :ok, :f :acquire, :process 0, :time 20, :index 1, :value {:client "c0", :fence 1}}
{:type :info, :f :start-partition, :process :nemesis, :time 25, :index 2, :value nil}
{:type :invoke, :f :acquire, :process 1, :time 30, :index 3, :value {:client "c1"}}
{:type :invoke, :f :release, :process 0, :time 40, :index 4, :value {:client "c0"}}
{:type :ok, :f :release, :process 0, :time 50, :index 5, :value {:client "c0"}}
{:type :ok, :f :acquire, :process 1, :time 60, :index 6, :value {:client "c1", :fence 2}}
"""

JEPSEN_LOG = """\
INFO  jepsen.core - something else
INFO  jepsen.util - 3\t:invoke\t:acquire\tnil
INFO  jepsen.util - 3\t:ok\t:acquire\tnil
INFO  jepsen.util - 4\t:invoke\t:acquire\tnil
INFO  jepsen.util - 4\t:info\t:acquire\t:timed-out
INFO  jepsen.util - 3\t:invoke\t:release\tnil
INFO  jepsen.util - 3\t:ok\t:release\tnil
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
2015-01-01 12:00:00,000 INFO  jepsen.util - 5\t:invoke\t:cas\t[1 2]
"""

TYPES = (":invoke", ":ok")

KEY_VALUE_LOG = """\
{:process 0, :type :invoke, :f :append, :key "7", :value "x"}
{:process 0, :type :ok, :f :append, :key "7", :value "x"}
{:process 1, :type :invoke, :f :get, :key "7", :value nil}
{:process 1, :type :ok, :f :get, :key "7", :value "x"}
{:process 1, :type :invoke, :f :get, :key "8", :value nil}
{:process 1, :type :ok, :f :get, :key "8", :value ""}
"""


class TestReading:
    @pytest.mark.parametrize(
        ("text", "format"),
        [
            (HAZELCAST, Format.EDN),
            (f"[{HAZELCAST}]", Format.EDN),
            ("; written by jepsen\n\n#jepsen.history.Op{:type :invoke}", Format.EDN),
            (JEPSEN_LOG, Format.JEPSEN_LOG),
            (KEY_VALUE_LOG, Format.KV_LOG),
            ('{"index":0}', Format.JSONL),
            ('{ "index":0}', Format.JSONL),
        ],
    )
    def test_formats_are_recognised(self, tmp_path: Path, text: str, format: Format) -> None:
        assert detect(write(tmp_path, text)) is format

    @pytest.mark.parametrize("text", ["", "what?", "INFO nothing of ours\n"])
    def test_what_is_no_format(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(HistoryError, match="name it with --format"):
            detect(write(tmp_path, text))

    def test_jepsens_logs(self, tmp_path: Path) -> None:
        records = read_records(write(tmp_path, JEPSEN_LOG))
        assert [record.line for record in records] == [2, 3, 4, 5, 6, 7, 8, 9]
        assert records[3].error == "timed-out"
        assert records[6].process is None
        assert records[7].value == [1, 2]
        found = calls(records[:7])
        assert [call.outcome for call in found] == ["ok", "info", "ok"]
        assert search.check(found, "mutex").verdict is Verdict.VALID

    def test_key_value_logs(self, tmp_path: Path) -> None:
        found = calls(read_records(write(tmp_path, KEY_VALUE_LOG)))
        assert search.check(found, "key-value").numbers["keys"] == 2
        wrong = KEY_VALUE_LOG.replace(
            '"7", :value "x"}\n{:process 1, :type :invoke, :f :get, :key "8"',
            '"7", :value "y"}\n{:process 1, :type :invoke, :f :get, :key "8"',
        )
        assert search.check(calls(read_records(write(tmp_path, wrong))), "key-value").verdict is Verdict.INVALID

    def test_independent_keys(self, tmp_path: Path) -> None:
        lines = [f"{{:process {n}, :type {type}, :f :write, :value [{n} 1]}}" for n in range(3) for type in TYPES]
        text = "\n".join(lines)
        found = calls(read_records(write(tmp_path, text)), independent=True)
        assert [(call.key, call.value) for call in found] == [(0, 1), (1, 1), (2, 1)]

    @pytest.mark.parametrize(
        ("text", "line", "problem"),
        [
            ("{:type :invoke}\n", 1, ":f nil; a name"),
            (HAZELCAST + "{:f :acquire}\n", 8, ":type nil"),
            (HAZELCAST + "7\n", 8, "is a map"),
            (HAZELCAST + '{:type :ok :f :acquire :process 9 :time "x"}', 8, ":time"),
            (HAZELCAST + "{:type :ok", 8, "never closed"),
            ("[" + HAZELCAST, 1, "never closed"),
            ("INFO  jepsen.util - 3 :invoke :acquire {:a\n", 1, "never closed"),
        ],
    )
    def test_what_is_wrong_and_where(self, tmp_path: Path, text: str, line: int, problem: str) -> None:
        with pytest.raises(HistoryError, match=problem) as raised:
            read_records(write(tmp_path, text))
        assert raised.value.line == line
        assert raised.value.path

    @pytest.mark.parametrize(
        ("more", "problem"),
        [
            (
                "{:type :invoke :f :acquire :process 1}\n{:type :invoke :f :acquire :process 1}",
                "while its 'acquire' of line 8",
            ),
            ("{:type :ok :f :acquire :process 9}", "without having invoked it"),
            (
                "{:type :invoke :f :acquire :process 9}\n{:type :ok :f :release :process 9}",
                "completes process 9's 'acquire'",
            ),
        ],
    )
    def test_what_cannot_be_paired(self, tmp_path: Path, more: str, problem: str) -> None:
        with pytest.raises(HistoryError, match=problem):
            calls(read_records(write(tmp_path, HAZELCAST + more)))


class TestMapping:
    def judge(self, tmp_path: Path, text: str, **names: Any) -> checker.Results:
        events = to_events(read_records(write(tmp_path, text)), Names(**names))
        return checker.check(History.of(events), ["linearizable", "fencing"])

    def test_fences_are_tokens_and_releases_name_the_last_one(self, tmp_path: Path) -> None:
        events = to_events(read_records(write(tmp_path, HAZELCAST)), Names())
        assert events[4].value == {"token": 1}
        assert events[2].process == "nemesis"
        assert self.judge(tmp_path, HAZELCAST).verdict is Verdict.VALID
        assert self.judge(tmp_path, HAZELCAST.replace(":fence 2", ":fence 1")).verdict is Verdict.INVALID

    def test_other_names(self, tmp_path: Path) -> None:
        text = HAZELCAST.replace(":acquire", ":lock").replace(":release", ":unlock").replace(":fence", ":number")
        assert self.judge(tmp_path, text, token="number").verdict is Verdict.VALID
        text = text.replace(":lock", ":seize")
        assert self.judge(tmp_path, text, token="number", functions={"seize": "acquire"}).verdict is Verdict.VALID

    def test_errors_are_observations_where_they_say_so(self, tmp_path: Path) -> None:
        refused = "{:type :invoke :f :acquire :process 9}\n{:type :fail :f :acquire :process 9 :error :busy}\n"
        assert self.judge(tmp_path, refused).verdict is Verdict.VALID
        assert self.judge(tmp_path, refused, errors={"busy": "held"}).verdict is Verdict.INVALID
        assert self.judge(tmp_path, refused.replace(":busy", ":locked")).verdict is Verdict.INVALID

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{:type :invoke :f :seize :process 1}", "'seize' is no operation of a lock; --map seize=acquire"),
            ("{:type :invoke :f :release :process 1}", "'release' names no token, and 1 was granted none"),
            (
                "{:type :invoke :f :acquire :process 1}\n{:type :ok :f :acquire :process 1 :value nil}",
                "'acquire' was granted without a token; --token FIELD",
            ),
        ],
    )
    def test_what_is_missing_is_named(self, tmp_path: Path, text: str, problem: str) -> None:
        with pytest.raises(HistoryError, match=problem) as raised:
            self.judge(tmp_path, text)
        assert raised.value.line == text.count("\n") + 1

    def test_a_name_that_stands_for_nothing(self) -> None:
        with pytest.raises(HistoryError, match="'seize' can't stand for 'grab'"):
            Names(functions={"seize": "grab"})


class TestLint:
    @pytest.mark.parametrize(
        ("text", "line", "problem"),
        [
            (
                "{:type :invoke :f :a :process 1}\n{:type :fail :f :a :process 1 :error :timed-out}",
                2,
                "its type is info",
            ),
            ("{:type :invoke :f :a :process 1}\n{:type :invoke :f :a :process 1}", 2, "two operations open"),
            ("{:type :invoke :f :a :process 1 :time 5}\n{:type :ok :f :a :process 1 :time 4}", 2, "time goes back"),
            ("{:type :ok :f :a :process 1}", 1, "has not invoked"),
            (
                "{:type :invoke :f :a :process 1}\n{:type :info :f :a :process 1}\n{:type :invoke :f :a :process 1}",
                3,
                "nobody knows the outcome of line 2",
            ),
            ("{:type :invoke :f :a :process 1}\n{:type :ok :f :a :process 1 :error :odd}", 2, "has the error 'odd'"),
        ],
    )
    def test_suspicions(self, tmp_path: Path, text: str, line: int, problem: str) -> None:
        (suspicion,) = lint(read_records(write(tmp_path, text)))
        assert suspicion.line == line
        assert problem in suspicion.words()

    def test_nothing_suspicious(self, tmp_path: Path) -> None:
        assert lint(read_records(write(tmp_path, HAZELCAST))) == []

    def test_many_of_a_kind_are_counted(self, tmp_path: Path) -> None:
        found = lint(read_records(write(tmp_path, "{:type :ok :f :a :process 1}\n" * 10)))
        assert len(found) == 4
        assert found[-1].words() == "line 4: and 7 more of the kind of line 1"


RUN = """
    nemesis leader {"node": "n1", "term": 1}
    1 acquire a
    nemesis partition {"fault": "f1", "action": "inject", "targets": ["n2"]}
    nemesis partition {"fault": "f1", "action": "injected", "evidence": "no answer"}
    1 ok 1
    2 acquire b
    2 fail held
    1 release a 1
    1 info
    """


class TestExport:
    def test_edn_is_read_again_as_the_same_history(self, tmp_path: Path) -> None:
        for seed in range(50):
            events = generate.damaged(random.Random(seed))
            if not events:
                continue
            text = "".join(export(History.of(events), Target.EDN))
            again = to_events(read_records(write(tmp_path, text)), Names())
            for claim in ("linearizable", "fencing", "mutual-exclusion"):
                one, other = (checker.check(History.of(found), [claim]) for found in (events, again))
                assert one.verdict is other.verdict

    def test_jsonl_is_what_was_read(self, tmp_path: Path) -> None:
        history = History.of(script.events(RUN))
        path = write(tmp_path, "".join(export(history, Target.JSONL)))
        assert checker.read(path).events == history.events

    def test_a_trace_for_perfetto(self) -> None:
        trace = json.loads("".join(export(History.of(script.events(RUN)), Target.PERFETTO)))
        events = trace["traceEvents"]
        names = [event["name"] for event in events if event["ph"] == "X"]
        assert names == ["acquire 1 ok", "release 1 timeout", "acquire held", "partition n2"]
        assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
        assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"key a", "key b", "nemesis"}


def test_records_of_our_own_format(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(export(History.of(script.events(RUN)), Target.JSONL)))
    assert [call.f for call in calls(read_records(path))] == ["acquire", "acquire", "release"]
