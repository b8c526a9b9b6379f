"""The look-alike's wire against what real SGLang servers said: the same keys, the same types, the same words."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.simulated import EAGLE3, Simulated, simulated

SAMPLES = Path(__file__).parent / "samples" / "simulator-contract"
PROMPT = list(range(100, 132))


def sample(name: str) -> Any:
    """Return what a real server said, as captured."""
    return json.loads((SAMPLES / name).read_text())


@pytest.fixture(scope="module", params=["baseline", "eagle3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    """A ready simulated server, without and with speculation."""
    flags = EAGLE3 if request.param == "eagle3" else ()
    speed = ("--sim-law", "plain", "--sim-time-scale", "0.3", "--decode-log-interval", "20")
    with simulated(tmp_path_factory.mktemp("simulated"), *speed, *flags) as running:
        assert running.statuses_until_ready()[-1] == 200
        yield running


def ask(server: Simulated, new: int = 12, **more: Any) -> httpx.Response:
    """Return the reply to a request for *new* tokens."""
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": new, "ignore_eos": True}} | more
    return server.client.post("/generate", json=body)


def events(text: str) -> list[str]:
    """Return the bodies of a stream's events."""
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def speculates(server: Simulated) -> bool:
    """Whether *server* does."""
    return server.client.get("/server_info").json()["speculative_algorithm"] is not None


def kind(value: object) -> str:
    """Return what JSON calls the type of *value*."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    return {"bool": "bool", "int": "number", "float": "number", "str": "string"}.get(type(value).__name__, "list")


def test_a_reply_has_the_keys_of_the_real_one(server: Simulated) -> None:
    """Key for key 0.5.23's `meta_info`, and with speculation the fields that 0.5.17 sent at the end."""
    real = json.loads(sample("replies-0.5.23.json")[0]["body"])
    spec = {key for key in sample("eagle3.generate.json")["meta_info"] if key.startswith("spec_")}
    aliases = {"spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"}

    reply = ask(server).json()

    assert set(reply) == set(real)
    assert set(reply["meta_info"]) == set(real["meta_info"]) | (spec - aliases if speculates(server) else set())


def test_a_reply_has_the_types_of_the_real_one(server: Simulated) -> None:
    """Each field has the type that a real server sent."""
    real = (
        json.loads(sample("replies-0.5.23.json")[0]["body"])["meta_info"] | sample("eagle3.generate.json")["meta_info"]
    )

    meta = ask(server).json()["meta_info"]

    nullable = {"cached_tokens_details"}
    assert {k: kind(v) for k, v in meta.items() if k not in nullable} == {
        k: kind(real[k]) for k in meta if k not in nullable
    }


def test_speculation_accounts_as_the_real_server_does(server: Simulated) -> None:
    """Histogram, steps and drafts fit each other, and the server's own length counts the token of prefill."""
    meta = ask(server, new=40).json()["meta_info"]
    if not speculates(server):
        assert "spec_verify_ct" not in meta
        return
    real = sample("eagle3.generate.json")["meta_info"]
    for said in (meta, real):
        histogram = said["spec_correct_drafts_histogram"]
        assert sum(histogram) == said["spec_verify_ct"]
        assert sum(right * steps for right, steps in enumerate(histogram)) == said["spec_num_correct_drafts"]
        assert said["spec_num_proposed_drafts"] == 3 * said["spec_verify_ct"]
        assert said["spec_accept_length"] == pytest.approx(said["completion_tokens"] / said["spec_verify_ct"])


def test_a_stream_is_cumulative_and_ends_with_its_marker(server: Simulated) -> None:
    """First token at once, then by the interval, each event with all tokens so far, then `[DONE]`."""
    text = ask(server, new=9, stream=True, sampling_params={"max_new_tokens": 9, "stream_interval": 4}).text

    *bodies, end = events(text)
    replies = [json.loads(body) for body in bodies]
    counts = [reply["meta_info"]["completion_tokens"] for reply in replies]

    assert end == "[DONE]"
    assert counts[0] == 1
    assert counts[-1] == 9
    assert [len(reply["output_ids"]) for reply in replies] == counts
    assert [reply["meta_info"]["finish_reason"] for reply in replies[:-1]] == [None] * (len(replies) - 1)
    assert replies[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 9}


def test_without_speculation_the_interval_is_exact(server: Simulated) -> None:
    """The captured stream of interval 4 and 9 tokens has events at 1, 5 and 9; so has ours."""
    text = ask(server, stream=True, sampling_params={"max_new_tokens": 9, "stream_interval": 4}).text
    counts = [json.loads(body)["meta_info"]["completion_tokens"] for body in events(text)[:-1]]

    assert counts == [1, 5, 9] if not speculates(server) else counts[-1] == 9


def test_the_same_prompt_says_the_same(server: Simulated) -> None:
    """A reply's tokens belong to its prompt: speculation loses nothing."""
    assert ask(server).json()["output_ids"] == ask(server).json()["output_ids"]


CASES = {
    "too long 400 application/json": {"input_ids": [7] * 9000},
    "too many new 400 application/json": {"input_ids": [7] * 4, "sampling_params": {"max_new_tokens": 99_999}},
    "text w/ skip tok 400 application/json": {"text": "Hello"},
    "no input 400 application/json": {},
    "bad field type 400 application/json": {"input_ids": "x"},
    "unknown sampling 400 application/json": {"input_ids": [7], "sampling_params": {"nonsense": 1}},
}


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_is_the_real_one(server: Simulated, case: str) -> None:
    """A request that the real server refused is refused with the same status, keys and words."""
    real = next(json.loads(each["body"]) for each in sample("replies-0.5.23.json") if each["case"] == case)

    response = server.client.post("/generate", json=CASES[case])

    assert response.status_code == 400
    assert response.json().keys() == real.keys()
    assert words(response.json()) == words(real)


def words(body: dict[str, Any]) -> str:
    """Return the first sentence of an error, numbers and details left out."""
    error = body.get("error", body)
    message = error if isinstance(error, str) else error["message"]
    return re.sub(r"\d+", "N", message).partition("\n")[0].partition(". You")[0]


def test_a_refused_stream_is_status_200_with_the_error_inside(server: Simulated) -> None:
    """Asked for a stream, SGLang says 200 and puts the error into it."""
    real = next(e["body"] for e in sample("replies-0.5.23.json") if e["case"].startswith("too long stream"))
    expected = json.loads(real.replace("\\n", "\n").split("\n\n")[0].removeprefix("data: "))

    response = server.client.post("/generate", json={"input_ids": [7] * 9000, "stream": True})
    body, end = events(response.text)

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert end == "[DONE]"
    assert json.loads(body)["error"].keys() == expected["error"].keys()


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_info_has_keys_and_types_of_the_real_ones(server: Simulated, path: str) -> None:
    """Whatever the look-alike says in `/server_info`, a real server said under that name, in that type or null."""
    real = sample("server_info_types.json")
    known: dict[str, set[str]] = {}
    for version in real.values():
        for key, types in (version["top"] | version["only_in_internal_states"]).items():
            known.setdefault(key, set()).add(types if isinstance(types, str) else "object")

    info = server.client.get(path).json()
    said = info | info["internal_states"][0]

    assert set(said) - {"internal_states"} <= set(known)
    optional = {"avg_spec_accept_length", "internal_states"}
    wrong = {
        key: (kind(value), known[key])
        for key, value in said.items()
        if key not in optional and kind(value) not in known[key] and "null" not in (known[key] | {kind(value)})
    }
    assert wrong == {}


def test_server_info_says_what_the_suite_compares(server: Simulated) -> None:
    """The values in force: cap, graph sizes, KV tokens, speculation, interval."""
    info = server.client.get("/server_info").json()
    state = info["internal_states"][0]

    assert info["version"] == "0.5.23"
    assert info["launch_command"].startswith("--port")
    assert state["effective_max_running_requests_per_dp"] == 64
    assert state["decode_cuda_graph_bs"][:3] == ([1, 2, 3] if speculates(server) else [1, 2, 4])
    assert info["max_total_num_tokens"] == (748_027 if speculates(server) else 788_971)
    assert info["speculative_num_steps"] == (3 if speculates(server) else None)
    assert info["stream_interval"] == 1


def test_loads_has_the_keys_of_the_real_one(server: Simulated) -> None:
    """`/v1/loads` has the fields of the real one that any client reads."""
    real = sample("eagle3.v1_loads.json")

    said = server.client.get("/v1/loads").json()

    assert said.keys() == real.keys()
    assert set(said["loads"][0]) <= set(real["loads"][0])
    assert {"num_running_reqs", "num_waiting_reqs", "token_usage", "max_running_requests"} <= set(said["loads"][0])


def test_metrics_are_families_of_the_real_page(server: Simulated) -> None:
    """Each family has the name, the type and the labels of a real server's."""
    ask(server)
    real = sample("metric_families.json")
    page = server.client.get("/metrics").text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    rows = re.findall(r"^(sglang:\w+)\{(.*)\} \S+$", page, re.MULTILINE)

    assert len(rows) > 12
    for family, labels in rows:
        assert types[family] == real[family]["type"]
        assert sorted(re.findall(r"(\w+)=", labels)) == real[family]["labels"]


def test_flush_says_what_the_real_one_says(server: Simulated) -> None:
    """Idle 200, busy 400, and with a timeout it waits or says that it waited in vain."""
    real = sample("base.flush_errors_health.json")
    idle = server.client.post("/flush_cache")
    with busy(server, 400):
        refused = server.client.post("/flush_cache")
        in_vain = server.client.get("/flush_cache?timeout=0.05")

    waited = server.client.get("/flush_cache?timeout=10")

    assert (idle.status_code, idle.text) == (200, real["flush_cache_idle_post"]["body"])
    assert (refused.status_code, refused.text) == (400, real["flush_cache_busy_post"]["body"])
    assert (in_vain.status_code, in_vain.text) == (400, "Timed out waiting for idle state.\n")
    assert waited.status_code == 200


def busy(server: Simulated, new: int) -> AbstractContextManager[httpx.Response]:
    """Return a stream under way."""
    body = {"input_ids": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": new}}
    return server.client.stream("POST", "/generate", json=body)


def running(server: Simulated) -> int:
    """Return the requests that the server says are running."""
    return int(server.client.get("/v1/loads").json()["loads"][0]["num_running_reqs"])


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until *holds*, for a few seconds; return whether it did."""
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(holds())


def test_a_dropped_stream_leaves_the_batch(server: Simulated) -> None:
    """A client that goes away takes its request along."""
    with busy(server, 4000) as response:
        pieces = response.iter_bytes()
        next(pieces)
        assert eventually(lambda: running(server) == 1)

    assert eventually(lambda: running(server) == 0)


def test_an_aborted_request_ends_as_the_real_one(server: Simulated) -> None:
    """`/abort_request` ends a reply with HTTP 200 and a finish reason of type abort, fewer tokens than asked."""
    real = sample("eagle3.abort.json")["aborted_meta"]["finish_reason"]
    replies = []

    def victim() -> None:
        body = {"input_ids": PROMPT, "rid": "victim", "sampling_params": {"max_new_tokens": 4000}}
        with httpx.Client(base_url=str(server.client.base_url), timeout=20) as client:
            replies.append(client.post("/generate", json=body))

    thread = threading.Thread(target=victim)
    thread.start()
    assert eventually(lambda: running(server) == 1)
    answered = server.client.post("/abort_request", json={"rid": "victim"})
    thread.join()
    meta = replies[0].json()["meta_info"]

    assert (answered.status_code, answered.text) == (200, "")
    assert replies[0].status_code == 200
    assert meta["finish_reason"] == real
    assert meta["completion_tokens"] < 4000


def test_the_log_has_sglangs_lines(server: Simulated) -> None:
    """Start, batches and readiness are written as SGLang writes them."""
    ask(server, new=80)
    log = server.log.read_text()

    assert re.search(
        r"max_total_num_tokens=\d+, chunked_prefill_size=8192, .*max_running_requests=64, context_len=", log
    )
    assert "The server is fired up and ready to roll!" in log
    assert re.search(r"Prefill batch, #new-seq: 1, #new-token: 32, #cached-token: 0,", log)
    accept = r"accept len: \d\.\d\d, accept rate: \d\.\d\d, " if speculates(server) else ""
    line = r"Decode batch, #running-req: 1, #token: \d+, token usage: 0\.00, "
    assert re.search(line + accept + r"cuda graph: True, gen throughput \(token/s\): \d+\.\d\d, #queue-req: 0", log)


def test_unknown_paths_are_404(server: Simulated) -> None:
    """As FastAPI says it."""
    real = next(json.loads(e["body"]) for e in sample("replies-0.5.23.json") if e["case"].startswith("404"))

    response = server.client.get("/nope")

    assert (response.status_code, response.json()) == (404, real)


def test_an_api_key_guards_all_but_health_and_metrics(tmp_path: Path) -> None:
    """With `--api-key` what lacks it is 401, but health, readiness and metrics stay open."""
    with simulated(tmp_path, "--sim-law", "plain", "--api-key", "secret") as guarded:
        guarded.statuses_until_ready()
        known = {"Authorization": "Bearer secret"}

        assert guarded.client.get("/server_info").json() == {"error": "Unauthorized"}
        assert guarded.client.get("/server_info", headers=known).status_code == 200
        assert guarded.client.get("/metrics").status_code == 200
