"""Figures out of what the tools print.

The samples are made here in the forms that these tools print, read off the code that does it;
every number in them is this project's own.
"""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pytest

from patchkit.trials import metrics, private
from patchkit.trials.figures import Wanted, before, figures
from patchkit.trials.metrics import (
    READERS,
    Figure,
    by_pattern,
    by_query,
    last_object,
    parse_pattern,
    parse_query,
    read,
    recognised,
)


def line(label: str, value: object) -> str:
    return f"{label:<40} {value:<10}\n"


SERVING = (
    f"{' Serving Benchmark Result ':=^50}\n"
    + line("Backend:", "sglang")
    + line("Traffic request rate:", "inf")
    + line("Max request concurrency:", "not set")
    + line("Successful requests:", 64)
    + line("Benchmark duration (s):", "12.50")
    + line("Total input tokens:", 65536)
    + line("Request throughput (req/s):", "5.12")
    + line("Input token throughput (tok/s):", "5242.88")
    + line("Output token throughput (tok/s):", "655.36")
    + line("Peak output token throughput (tok/s):", "901.00")
    + line("Total token throughput (tok/s):", "5898.24")
    + line("Concurrency:", "15.75")
    + line("Accept length:", "2.31")
    + f"{'End-to-End Latency':-^50}\n"
    + line("Mean E2E Latency (ms):", "3076.17")
    + line("P99 E2E Latency (ms):", "4100.00")
    + f"{'Time to First Token':-^50}\n"
    + line("Median TTFT (ms):", "120.25")
    + f"{'Time per Output Token (excl. 1st token)':-^50}\n"
    + line("Mean TPOT (ms):", "23.27")
    + f"{'Inter-Token Latency':-^50}\n"
    + line("Max ITL (ms):", "88.10")
    + "=" * 50
    + "\n"
)


def values(tool: str, text: str) -> dict[str, float]:
    return {name: figure.value for name, figure in read(tool, text).items()}


def test_the_table_of_sglang_bench_serving() -> None:
    found = read("sglang-serving", f"#Input tokens: 65536\n{SERVING}trailing line: 1\n")
    assert found["output_throughput"] == Figure(655.36, "tok/s", "higher")
    assert found["mean_e2e_latency_ms"] == Figure(3076.17, "ms", "lower")
    assert found["completed"] == Figure(64, None, "higher")
    assert found["accept_length"].value == 2.31 and found["max_itl_ms"].value == 88.1
    assert {"median_ttft_ms", "mean_tpot_ms", "p99_e2e_latency_ms", "duration"} <= set(found)
    assert "max_request_concurrency" not in found and len(found) == 14


def test_the_json_lines_of_sglang_bench_serving_have_the_same_names() -> None:
    row = {
        "backend": "sglang", "request_rate": 4.0, "duration": 12.5, "completed": 64,
        "output_throughput": 655.36, "mean_e2e_latency_ms": 3076.17, "accept_length": None,
        "server_info": {"x": 1}, "std_ttft_ms": 3.0,
    }  # fmt: skip
    text = json.dumps({**row, "output_throughput": 1.0}) + "\n" + json.dumps(row) + "\n"
    found = values("sglang-serving", text)
    assert found["output_throughput"] == 655.36  # of one case the last line counts
    assert found == {
        "duration": 12.5,
        "completed": 64,
        "output_throughput": 655.36,
        "mean_e2e_latency_ms": 3076.17,
    }
    several = json.dumps(row) + "\n" + json.dumps({**row, "request_rate": 8.0})
    assert "output_throughput@rate8.0" in values("sglang-serving", several)


ONE_BATCH = """Warmup ...
Prefill. latency: 0.90000 s, throughput:   1137.78 token/s
Decode 0. Batch size: 1, latency: 0.50000 s, throughput:      2.00 token/s
Decode.  median latency: 0.40000 s, median throughput:      2.50 token/s
Total. latency:  9.000 s, throughput:    115.56 token/s
Benchmark ...
Prefill. latency: 0.05120 s, throughput:  20000.00 token/s
Decode 0. Batch size: 1, latency: 0.01000 s, throughput:    100.00 token/s
Decode.  median latency: 0.00800 s, median throughput:    125.00 token/s
Total. latency:  0.180 s, throughput:   5777.78 token/s
"""


def test_what_sglang_bench_one_batch_prints_without_its_warm_up() -> None:
    assert values("sglang-one-batch", ONE_BATCH) == {
        "prefill_latency": 0.0512,
        "prefill_throughput": 20000.0,
        "median_decode_latency": 0.008,
        "median_decode_throughput": 125.0,
        "total_latency": 0.18,
        "overall_throughput": 5777.78,
    }


def test_the_json_lines_of_bench_one_batch_are_told_apart_by_case() -> None:
    rows = [
        {"run_name": "default", "batch_size": size, "input_len": 1024, "output_len": 16,
         "total_latency": size / 10, "overall_throughput": 10.0 * size}
        for size in (1, 16)
    ]  # fmt: skip
    found = values("sglang-one-batch", "".join(json.dumps(row) + "\n" for row in rows))
    assert found["total_latency@bs16,in1024,out16"] == 1.6
    assert found["overall_throughput@bs1,in1024,out16"] == 10.0
    one = values("sglang-one-batch", json.dumps(rows[0]))
    assert one == {"total_latency": 0.1, "overall_throughput": 10.0}


def test_what_bench_one_batch_server_prints() -> None:
    text = (
        "batch size: 1\ninput_len: 1024\noutput_len: 16\nlatency: 0.99 s\n"
        "input throughput: 1.00 tok/s\n"
        "batch size: 4\ninput_len: 1024\noutput_len: 16\nlatency: 0.42 s\n"
        "input throughput: 15000.50 tok/s\noutput throughput: 90.25 tok/s\n"
        "last_ttft: 0.07 s\nlast generation throughput: 88.00 tok/s\nacc_length: 2.50 \n"
    )
    found = read("sglang-one-batch", text)
    assert found["latency"] == Figure(0.42, "s", "lower")
    assert found["last_gen_throughput"].value == 88.0 and found["acc_length"].value == 2.5
    assert found["output_throughput"] == Figure(90.25, "tok/s", "higher")


def test_the_json_of_vllm_bench_serve() -> None:
    result = {
        "date": "20260101-000000", "backend": "vllm", "num_prompts": 64, "request_rate": "inf",
        "duration": 10.0, "completed": 64, "failed": 0, "total_input_tokens": 1,
        "request_throughput": 6.4, "request_goodput": None, "output_throughput": 820.0,
        "total_token_throughput": 7400.0, "mean_ttft_ms": 90.0, "median_e2el_ms": 2000.0,
        "std_itl_ms": 1.0, "p99_itl_ms": 31.5, "spec_decode_acceptance_length": 2.4,
        "ttfts": [0.1], "errors": [""],
    }  # fmt: skip
    found = read("vllm-serve", json.dumps(result, indent=2))
    assert found["output_throughput"] == Figure(820.0, "tok/s", "higher")
    assert found["median_e2el_ms"] == Figure(2000.0, "ms", "lower")
    assert found["failed"] == Figure(0, None, "lower")
    assert "total_input_tokens" not in found and "std_itl_ms" not in found and len(found) == 10


def test_the_table_of_vllm_bench_serve() -> None:
    text = (
        f"{' Serving Benchmark Result ':=^50}\n"
        + line("Successful requests:", 64)
        + line("Failed requests:", 0)
        + line("Output token throughput (tok/s):", "820.00")
        + line("P99 E2EL (ms):", "2500.00")
        + line("Acceptance length:", "2.40")
    )
    assert values("vllm-serve", text) == {
        "completed": 64,
        "failed": 0,
        "output_throughput": 820.0,
        "p99_e2el_ms": 2500.0,
        "spec_decode_acceptance_length": 2.4,
    }


def test_the_json_of_genai_perf() -> None:
    latency = {"unit": "ms", "avg": 12.5, "p50": 12.0, "p99": 20.0, "min": 1.0, "std": 0.5}
    text = json.dumps(
        {
            "request_throughput": {"unit": "requests/sec", "avg": 3.25},
            "time_to_first_token": latency,
            "output_sequence_length": {**latency, "unit": "tokens"},
            "input_config": {"model_names": ["m"]},
        }
    )
    found = read("genai-perf", text)
    assert found["request_throughput"] == Figure(3.25, "requests/sec", "higher")
    assert found["time_to_first_token_p99"] == Figure(20.0, "ms", "lower")
    assert found["output_sequence_length_avg"].better is None
    assert "time_to_first_token_std" not in found
    assert read("genai-perf", "{}") == {} and read("genai-perf", '{"a": ') == {}


def test_the_csv_of_genai_perf() -> None:
    text = (
        "Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1\r\n"
        'Request Latency (ms),"1,234.50",1.00,2.00,3.00,4.00,5.00,6.00,7.00,8.00,9.00,10.00,N/A\r\n'
        "\r\nMetric,Value\r\n"
        'Output Token Throughput (tokens/sec),"5,000.25"\r\nRequest Count (count),64.00\r\n'
    )
    found = read("genai-perf", text)
    assert found["request_latency_avg"] == Figure(1234.5, "ms", "lower")
    assert found["request_latency_p50"].value == 7.0
    assert found["output_token_throughput"] == Figure(5000.25, "tokens/sec", "higher")
    assert found["request_count"] == Figure(64.0, "count", None)


def nccl_row(size: int, *cells: object) -> str:
    head = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:>6}"
    half = len(cells) // 2
    for part in (cells[:half], cells[half:]):
        head += "".join(f"  {cell:>7}" if not n else f"  {cell:>6}" for n, cell in enumerate(part))
    return f"{head}\n"


NCCL = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 33554432 step: 2(factor) warmup iters: 5\n#\n"
    "#                                                              out-of-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n"
    + nccl_row(43008, "201.3", "0.21", "0.37", "0", "199.8", "0.22", "0.38", "0")
    + nccl_row(33554432, "1.2e+06", "24.5", "42.88", "N/A", "1370.1", "24.49", "42.86", "N/A")
    + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 21.6225 \n#\n"
)


def test_the_table_of_nccl_tests() -> None:
    found = read("nccl-tests", NCCL)
    assert found["avg_busbw"] == Figure(21.6225, "GB/s", "higher")
    assert found["time@43008"] == Figure(201.3, "us", "lower")
    assert found["inplace_busbw@33554432"] == Figure(42.86, "GB/s", "higher")
    assert found["time@33554432"].value == 1.2e6
    assert found["out_of_bounds"] == Figure(0, None, "lower") and len(found) == 10
    timed = nccl_row(8, *("1.0", "2.0", "3.0", "0", "4", "5", "6", "7") * 2)
    assert values("nccl-tests", timed + NCCL)["inplace_busbw@8"] == 3.0


def test_the_output_of_known_tools_is_recognised_and_nothing_else_is() -> None:
    assert recognised(SERVING)["output_throughput"].value == 655.36
    assert recognised(ONE_BATCH)["total_latency"].value == 0.18
    assert recognised(NCCL)["avg_busbw"].value == 21.6225
    assert recognised("all is well: 100\nlatency: 3 s\n{}\n") == {}


@pytest.mark.parametrize(
    ("spec", "output", "figure"),
    [
        (r"a=x: (\d+)", "x: 1\nx: 22\n", Figure(22)),
        (r"a=x: \d+", "x: 1", Figure(1)),
        (r"a[tok/s]=(\S+)$", "1\n1,234.5\n", Figure(1234.5, "tok/s", "higher")),
        (r"a[ms]=^t=(.*)$", "t=1.5e-3\nu=2", Figure(0.0015, "ms", "lower")),
        (r"a[points]:lower=(\d+)", "7", Figure(7, "points", "lower")),
        (r"a:higher=([-\d]+)", "-7", Figure(-7, None, "higher")),
        (r"a=(\w+)", "none", None),
        (r"a=(\S+)", "12,5", None),  # twelve and a half to some
        (r"a=(.+)", "5, and 6", Figure(5)),
        (r"a=(\S+)", "1e400", None),
        (r"a=b", "", None),
    ],
)
def test_a_metric_by_a_regular_expression(spec: str, output: str, figure: Figure | None) -> None:
    assert by_pattern(parse_pattern(spec), output) == figure


@pytest.mark.parametrize("spec", ["a", "=x", "a[b=x", "a=(", "[s]=x"])
def test_a_metric_that_is_none_says_why(spec: str) -> None:
    with pytest.raises(ValueError, match=r"NAME=REGEX|regular expression"):
        parse_pattern(spec)


def test_a_metric_by_a_jmespath() -> None:
    query = parse_query("f.json:rows[?n==`2`].v | [0]")
    assert (query.file, by_query(query, {"rows": [{"n": 2, "v": 5}]})) == ("f.json", Figure(5))
    named = parse_query("speed[tok/s]=-:a.b")
    assert by_query(named, {"a": {"b": "12.5"}}) == Figure(12.5, "tok/s", "higher")
    assert named.file == "-" and named.name == "speed"
    nothing: list[object] = []
    for value in ({}, {"a": {"b": True}}, {"a": {"b": [1]}}, nothing, {"a": {"b": float("nan")}}):
        assert by_query(named, value) is None
    assert parse_query("out.json:metrics.ttft").name == "ttft"
    assert last_object('{"a": 1}\n{broken}\ntext') == {"a": 1}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"a": 10**400}),
        ("a[::0]", {"a": [1]}),
        ("max_by(a, &b)", {"a": [{"b": 1}, {"b": "x"}]}),
        ("sum(a)", {"a": ["x"]}),
    ],
)
def test_a_jmespath_that_fails_on_what_is_there_gives_no_figure(path: str, value: object) -> None:
    assert by_query(parse_query(f"x=-:{path}"), value) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' + "[" * 100_000,
        '{"duration": ' + "9" * 400 + "}",
        '{"duration": ' + "9" * 5000 + "}",
        "# Avg bus bandwidth : e",
        "Prefill. latency: 1..2 s, throughput: ... token/s",
        "batch size: 1\ninput throughput: 1 tok/s\nlatency: . s\n",
        'Metric,avg\n"' + "x" * 200_000 + '",1\n',
    ],
)
def test_an_output_that_is_broken_ends_no_reader(text: str) -> None:
    for tool in READERS:
        read(tool, text)
    last_object(f"{text}]}}")


def test_a_pattern_is_looked_for_in_what_a_person_sees() -> None:
    said = "\x1b]0;title\x07  50%|##  |\r100%|####|\r"
    said += "\x1b[32mspeed:\x1b[0m \x1b[1m89.5\x1b[0m tok/s\r\n"
    wanted = Wanted(patterns=(parse_pattern(r"a=^speed: ([\d.]+) tok/s$"),))
    assert figures(wanted, said, "/", {}).values == {"a": 89.5}
    # A title that does not end is over with its line.
    said = "\x1b]of no end\nspeed: 89.5 tok/s\n"
    assert figures(wanted, said, "/", {}).values == {"a": 89.5}


def test_a_pattern_that_takes_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_SEARCH", 1.0)
    wanted = Wanted(patterns=(parse_pattern("a=(x+)+$"), parse_pattern(r"b=v (\d+)")))
    found = figures(wanted, "v 3\n" + "x" * 40 + "!", "/", {})
    assert found.values == {"b": 3.0}
    assert found.problems == ["the search for a was given up: its pattern takes too long"]


def test_lines_that_a_run_appends_are_its_own(tmp_path: Path) -> None:
    file = tmp_path / "result.jsonl"
    file.write_text('{"batch_size": 1, "total_latency": 9.0}\n')
    wanted = Wanted(files=(("sglang-one-batch", "result.jsonl"),))
    marks = before(wanted, str(tmp_path))
    assert figures(wanted, "", str(tmp_path), marks).problems == [
        "result.jsonl is from before this run"
    ]
    with file.open("a") as out:
        out.write('{"batch_size": 16, "total_latency": 2.0}\n')
    found = figures(wanted, "", str(tmp_path), marks)
    assert (found.values, found.problems) == ({"total_latency": 2.0}, [])
    assert figures(Wanted(files=(("genai-perf", "x"),)), "", str(tmp_path), {"x": None}).problems


# -- secrets ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"),
        ("SGLANG_API_KEY", "short"),
        ("NCCL_PASSWORD", "words of it"),
        ("VLLM_X", "hf_abcdefghijklmnopqrstuv"),
        ("VLLM_X", "c2VjcmV0IGtleSBmb3IgdGVzdHM0NTY3ODkw"),
        ("VLLM_DB_PWD", "hunter2"),
        ("VLLM_MYPASSWORD", "hunter2"),
        ("HF_GITHUB_PAT", "hunter2"),
        ("VLLM_TOKEN_2", "hunter2"),
        ("VLLM_WEBHOOK", "https://hooks.example/services/T0/B0/abc"),
        ("VLLM_X", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ],
)
def test_secrets_are_hidden_by_name_by_mark_and_by_entropy(name: str, value: str) -> None:
    assert private.environment({name: value}) == {name: private.HIDDEN}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "Tree"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("CUDA_HOME", "/usr/local/cuda-12.8"),
        ("LD_LIBRARY_PATH", "/opt/nvidia/nsight-systems/2025.1.1/lib:/usr/lib/x86_64-linux-gnu"),
        ("SGLANG_MAX_KEYS", "128"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f6d1b9e-3c2a-4b57-9e1f-aa0bb1c2d3e4"),
        ("SGLANG_TOKEN_STEP", "2 4"),
        ("VLLM_KEY", "auto"),
        ("HF_HOME", "/data/Models_2025_Q3_Release_Cache01"),
        ("TRITON_CACHE_DIR", "/home/user/.cache/patchkit/jit/0123456789abcdef/triton"),
    ],
)
def test_settings_are_shown(name: str, value: str) -> None:
    assert private.environment({name: value}) == {name: value}


def test_what_does_not_matter_is_left_out_unless_it_was_given() -> None:
    variables = {"HOME": "/root", "EDITOR": "vi", "NCCL_ALGO": "Ring", "MINE": "1"}
    assert private.environment(variables, ["MINE"]) == {"MINE": "1", "NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    "words",
    [
        ("env", "API_KEY=open sesame", "python", "x.py"),
        ("sh", "-c", "export MY_TOKEN='open sesame'; exec serve --tp 8"),
        ("sh", "-c", "serve --tp 8 --api-key sesame"),
        ("curl", "-u", "me:sesame", "http://host/?tp=8"),
        ("curl", "-H", "Authorization: Bearer sesame", "http://host/?tp=8"),
        ("curl", "http://host/v1?tp=8&token=sesame"),
        ("serve", "--store", "redis://:sesame@host/0"),
        ("serve", "--config", '{"tp": 8, "api_key": "sesame"}'),
        ("git", "clone", "https://ghs_opensesame01@host/x"),
    ],
)
def test_a_secret_within_a_word_of_a_command_is_hidden(words: tuple[str, ...]) -> None:
    kept = private.command(words)
    assert len(kept) == len(words) and kept[0] == words[0]
    assert not any("sesame" in word for word in kept), kept
    assert private.HIDDEN in " ".join(kept)


def test_what_is_no_secret_stays_in_a_command() -> None:
    words = (
        *("env", "NCCL_ALGO=Ring", "python", "-m", "sglang.launch_server", "--max-tokens", "100"),
        *("--model-path=/models/Kimi-K2.5-INT4", "sh", "-c", "a=b; serve --tp 8 http://host:80/x"),
    )
    assert private.command(words) == words


@pytest.mark.parametrize(
    "model",
    [
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B-AWQ",
        "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        "ShareGPT_V3_unfiltered_cleaned_split.json",
    ],
)
def test_the_name_of_a_model_is_no_secret(model: str) -> None:
    revision = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"
    words = (
        *("serve", "--model-path", model, f"--model={model}", "--revision", revision),
        *("--speculative-token-map", "thunlp/LLaMA3-Instruct-8B-FR-Spec"),
    )
    assert private.command(words) == words


def test_random_tokens_are_told_from_names() -> None:
    chance = random.Random(1)
    signs = string.ascii_letters + string.digits + "-_"
    tokens = ["".join(chance.choices(signs, k=40)) for _ in range(1000)]
    assert sum(map(private.is_secret, tokens)) > 950


def test_what_a_command_says_of_its_secrets_is_hidden() -> None:
    words = ("serve", "--api-key", "open-sesame", "--token=other sesame")
    known = private.secrets({"HF_TOKEN": "third-sesame"}, words)
    said = "ServerArgs(api_key='sesame', tp=8), open-sesame, other sesame, third-sesame"
    said += ", {'hf_token': 'sesame', 'tp': 8}"
    kept = private.output(said, known)
    assert "sesame" not in kept and "tp=8" in kept and "'tp': 8" in kept


def test_a_command_line_and_a_text_keep_no_secret() -> None:
    words = ["serve", "--api-key", "abc", "--token=x", "--tp", "8", "http://u:p@host/", "--key"]
    assert private.command(words) == (
        *("serve", "--api-key", private.HIDDEN, f"--token={private.HIDDEN}", "--tp", "8"),
        *(f"http://{private.HIDDEN}@host/", "--key"),
    )
    assert private.text("key is abcdefgh!", ["abcdefgh"]) == f"key is {private.HIDDEN}!"
