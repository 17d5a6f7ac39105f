"""A Spark application's shuffles, by its event log."""

import json

import pytest

from apps.jobs.spark import shuffles
from hydra.errors import HydraError


def line(what: str, **more: object) -> str:
    return json.dumps({"Event": f"SparkListener{what}", **more})


def executor(number: str, host: str) -> str:
    return line("ExecutorAdded", **{"Executor ID": number, "Executor Info": {"Host": host}})


def stage(what: str, number: int, *parents: int, attempt: int = 0, **more: object) -> str:
    info = {"Stage ID": number, "Stage Attempt ID": attempt, "Parent IDs": [*parents], **more}
    return line(f"Stage{what}", **{"Stage Info": info})


def job(number: int, **parents: list[int]) -> str:
    """The start of a job, by the stages from which each stage fetches."""
    infos = [{"Stage ID": int(one[1:]), "Parent IDs": some} for one, some in parents.items()]
    return line("JobStart", **{"Job ID": number, "Stage Infos": infos})


TWO_HOSTS = [executor("0", "h21"), executor("1", "h11"), executor("2", "h11")]


def told(*events: str) -> list[tuple[int, tuple[str, ...], bool]]:
    return [(one.stage, one.hosts, one.begins) for one in shuffles([*TWO_HOSTS, *events])]


BOTH = ("h11", "h21")


def test_a_stage_with_parents_is_a_shuffle_for_as_long_as_it_takes():
    events = [stage("Submitted", 0), stage("Completed", 0), stage("Submitted", 1, 0)]
    assert told(*events, stage("Completed", 1, 0)) == [(1, BOTH, True), (1, BOTH, False)]


def test_hosts_are_those_with_executors_when_it_begins():
    gone = line("ExecutorRemoved", **{"Executor ID": "0"})
    unknown = line("ExecutorRemoved", **{"Executor ID": "9"})
    begun = [executor("3", "h31"), gone, unknown, stage("Submitted", 1, 0)]
    assert told(*begun)[0] == (1, ("h11", "h31"), True)


@pytest.mark.parametrize("end", [[], [stage("Submitted", 1, 0, attempt=1)]])
def test_what_begins_ends_with_the_log_or_before_the_next_attempt(end):
    found = told(stage("Submitted", 1, 0), *end)
    assert [begins for _, _, begins in found] == [True, False] * (1 + len(end))


def test_a_shuffle_begins_when_all_stages_that_it_fetches_from_are_completed():
    """Spark's line for a stage's start comes with its end: until then it is buffered."""
    events = [job(7, s0=[], s1=[], s2=[0, 1], s3=[2]), stage("Completed", 0)]
    assert told(*events) == []
    assert told(*events, stage("Completed", 1))[0] == (2, BOTH, True)
    late = [stage("Completed", 1), stage("Submitted", 2, 0, 1), stage("Completed", 2, 0, 1)]
    expected = [(2, BOTH, True), (2, BOTH, False), (3, BOTH, True), (3, BOTH, False)]
    assert told(*events, *late) == expected


def test_a_stage_that_failed_is_no_end_of_what_is_fetched():
    events = [job(7, s0=[], s1=[0]), stage("Completed", 0, **{"Failure Reason": "killed"})]
    assert told(*events) == []
    again = [*events, stage("Completed", 0, attempt=1)]
    assert told(*again)[0] == (1, BOTH, True)
    failed = stage("Completed", 1, 0, **{"Failure Reason": "fetch failed"})
    found = told(*again, failed, stage("Completed", 0, attempt=2))
    assert [begins for _, _, begins in found] == [True, False, True, False]


def test_a_job_that_ends_ends_its_shuffles_and_no_others():
    events = [job(7, s0=[], s1=[0]), job(8, s2=[], s3=[2]), stage("Completed", 0)]
    both = [*events, stage("Completed", 2), line("JobEnd", **{"Job ID": 7})]
    assert told(*both)[:3] == [(1, BOTH, True), (3, BOTH, True), (1, BOTH, False)]
    shared = [job(7, s0=[], s1=[0]), job(8, s0=[], s1=[0]), stage("Completed", 0)]
    assert len(told(*shared, line("JobEnd", **{"Job ID": 7}), executor("4", "h12"))) == 2


def test_it_is_told_as_lines_come():
    log = iter([*TWO_HOSTS, stage("Submitted", 1, 0), "no JSON"])
    follower = shuffles(log)
    assert next(follower).begins
    assert next(log) == "no JSON"


@pytest.mark.parametrize(
    "bad", ["no JSON", "[]", "7", "{}", line("ExecutorAdded"), line("StageSubmitted")]
)
def test_a_line_that_is_no_event_is_named(bad):
    with pytest.raises(HydraError, match="line 4 is no event of Spark's"):
        told(bad, stage("Submitted", 1, 0))


@pytest.mark.parametrize("torn", ['{"Event":"SparkListenerSta', "", "{}", "\0\0\0"])
def test_a_torn_last_line_ends_the_log_and_what_has_begun(torn):
    """Spark that is killed leaves such a log (SPARK-6197)."""
    assert told(stage("Submitted", 1, 0), torn) == [(1, BOTH, True), (1, BOTH, False)]


def test_what_has_begun_ends_before_a_line_that_is_no_event_is_an_error():
    log = shuffles([*TWO_HOSTS, stage("Submitted", 1, 0), "no", executor("9", "h31")])
    assert [next(log).begins, next(log).begins] == [True, False]
    with pytest.raises(HydraError, match="line 5"):
        next(log)


def test_lines_may_be_bytes():
    lines = [one.encode() for one in (*TWO_HOSTS, stage("Submitted", 1, 0))]
    assert [one.begins for one in shuffles(lines)] == [True, False]


def test_a_log_that_is_compressed_is_refused_with_both_settings():
    """Spark 4 compresses with zstd by default (SPARK-45257), and rolls (SPARK-45771)."""
    for start, codec in (
        (b"\x28\xb5\x2f\xfd\x00\x58\n", "zstd"),
        (b"LZ4Block\x26\n", "lz4"),
        (b"\x82SNAPPY\x00\n", "snappy"),
        (b"ZV\x01\n", "lzf"),
        (b"\x28\xb5\x2f\xfd".decode("utf-8", "surrogateescape"), "zstd"),
    ):
        with pytest.raises(HydraError, match=f"compressed with {codec}") as refused:
            next(shuffles([start]))
        assert "spark.eventLog.compress=false" in str(refused.value)
        assert "spark.eventLog.rolling.enabled=false" in str(refused.value)
