import pytest

from apps.rest.reply import parse_wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        (["wait=5"], 5),
        (["wait=0"], 0),
        (["WAIT = 7"], 7),
        (['wait="8"'], 8),
        (["respond-async, wait=10"], 10),
        (["respond-async", "wait=10; foo=bar"], 10),
        (["wait=3, wait=9"], 3),
        (["wait=3", "wait=9"], 3),
        (["wait=600"], 60),
        (["wait=999999999"], 60),
        (["wait=9999999999"], None),
        (["wait=-1"], None),
        (["wait=1.5"], None),
        (["wait=soon"], None),
        (["wait"], None),
        (["await=4"], None),
        (["wait=٣"], None),
    ],
)
def test_wait_is_read_as_the_rfc_says(headers, seconds):
    assert parse_wait(headers) == seconds
