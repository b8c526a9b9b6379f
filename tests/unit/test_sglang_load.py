"""A server's load is read without making it generate, and nothing is measured on a cache that may hold something."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.engines import ServerError, sglang_load
from fixtures.engines.sglang import API_KEY, SGLang
from tests.unit.captured import Answers, Replaying, asked, replaying, sample

EAGLE3, CPU = "h200-0.5.17.eagle3", "cpu-0.5.23"

Serve = Callable[[Answers], Replaying]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return the function that serves captured replies."""
    with ExitStack() as servers:
        yield lambda answers: servers.enter_context(replaying(tmp_path, answers))


def loads(*ranks: tuple[int, int, float]) -> str:
    """Return a body of `/v1/loads`: per rank running, waiting, token usage."""
    keys = ("num_running_reqs", "num_waiting_reqs", "token_usage")
    return json.dumps({"loads": [dict(zip(keys, rank, strict=True)) for rank in ranks]})


def test_load_is_summed_over_ranks(serve: Serve) -> None:
    """Data-parallel ranks share the requests; the fullest one is short of memory first."""
    server = serve({"/v1/loads": [(200, loads((30, 1, 0.2), (31, 2, 0.7)))]})

    load = asked(server, SGLang(profiles.load("sim")).counters)

    assert (load.running, load.queued, load.token_usage) == (61, 3, 0.7)


def test_load_comes_from_metrics_where_there_are_no_loads(serve: Serve) -> None:
    """The page of the real H200, with its counters."""
    server = serve({"/metrics": [(200, sample(f"{EAGLE3}.metrics.txt"))]})

    load = asked(server, SGLang(profiles.load("sim")).counters)

    assert (load.running, load.queued, load.token_usage) == (0, 0, 0)
    assert load.totals["generation_tokens_total"] == 378216
    assert load.totals["spec_verify_calls_total"] == 135280
    assert load.totals["cuda_graph_passes_total:decode_cuda_graph"] == 2842
    assert "num_retracted_requests_total" not in load.totals


def test_steps_outside_graphs_are_counted() -> None:
    """The 0.5.23 on a CPU decoded without graphs."""
    totals = sglang_load.of_metrics(sample(f"{CPU}.metrics.txt")).totals

    assert totals["cuda_graph_passes_total:decode_none"] == 490


def test_page_without_a_gauge_says_nothing_of_it() -> None:
    """Absent is not zero."""
    load = sglang_load.of_metrics("# TYPE up gauge\nup 1.0\n")

    assert (load.running, load.queued, load.token_usage) == (None, None, None)


def test_totals_have_the_suites_names(serve: Serve) -> None:
    """The page of the real H200: 94 prefills, and not one decode pass outside a graph."""
    server = serve({"/metrics": [(200, sample(f"{EAGLE3}.metrics.txt"))]})

    assert asked(server, SGLang(profiles.load("sim")).totals) == {
        "generated_tokens": 378216,
        "verify_calls": 135280,
        "prefill_passes": 94,
        "decode_passes": 2842,
        "decode_passes_outside_graphs": 0,
    }


def test_totals_count_passes_outside_graphs(serve: Serve) -> None:
    """The 0.5.23 on a CPU decoded without graphs, and does not speculate."""
    server = serve({"/metrics": [(200, sample(f"{CPU}.metrics.txt"))]})

    assert asked(server, SGLang(profiles.load("sim")).totals) == {
        "generated_tokens": 497,
        "prefill_passes": 13,
        "decode_passes": 490,
        "decode_passes_outside_graphs": 490,
    }


@pytest.mark.parametrize(
    "answer", [(404, "Not Found"), (200, "<html>this is a proxy</html>")], ids=["no metrics", "another page"]
)
def test_server_without_metrics_has_no_totals(serve: Serve, answer: tuple[int, str]) -> None:
    """A server started without `--enable-metrics` is measured all the same."""
    server = serve({"/metrics": [answer]})

    assert asked(server, SGLang(profiles.load("sim")).totals) == {}


BUSY, FLUSHED = (400, "Flush cache failed.\n"), (200, "Cache flushed.\n")


def test_flush_waits_for_an_idle_server(serve: Serve) -> None:
    """A busy server answers 400 as the real one does; then it is asked again."""
    server = serve({"/flush_cache": [BUSY, BUSY, FLUSHED]})

    asked(server, lambda client: sglang_load.flush(client, {}))

    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("answer", "asked_again"), [(BUSY, True), ((403, "Forbidden"), False)], ids=["busy for good", "not allowed"]
)
def test_flush_that_fails_is_an_error(serve: Serve, answer: tuple[int, str], asked_again: bool) -> None:
    """What is in the cache is unknown, so nothing is measured; only a busy server is asked again."""
    server = serve({"/flush_cache": [answer]})

    with pytest.raises(ServerError, match=f"could not be flushed: HTTP {answer[0]}"):
        asked(server, lambda client: sglang_load.flush(client, {}, patience_s=1))

    assert (len(server.seen) > 1) == asked_again


def test_key_goes_into_headers_only(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that asks for a key gets it with every question; no command line and no variable of ours has it."""
    monkeypatch.setenv(API_KEY, "hush")
    server = serve({"/flush_cache": [(200, "Cache flushed.")]})
    engine = SGLang(profiles.load("sim"))

    asked(server, engine.flush)

    assert server.seen == [("POST", "/flush_cache", "Bearer hush")]
    assert "hush" not in str(engine.command("eagle3", 1))
