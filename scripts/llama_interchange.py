#!/usr/bin/env python3
"""Shows that a drafter of ours runs in llama.cpp: builds llama-server of the pinned source once (build/llama-server,
about ten minutes on two cores), answers prompts with it, with and without `--spec-type draft-dflash`, and compares
tokens a cycle with `bastion bench --methods chain` on the same prompts.

    scripts/llama_interchange.py [--drafter F] [--target F] [--prompts F.jsonl] [--limit n] [--max-tokens n]

Needs scripts/setup.sh and build/release/bastion (make build). Uses the standard library alone.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SERVER = ROOT / "build/llama-server/bin/llama-server"


def fail(message):
    sys.exit(f"llama_interchange: error: {message}")


def build_server():
    if SERVER.exists():
        return
    source = ROOT / "deps/llama.cpp"
    if not source.is_dir():
        fail("deps/llama.cpp is missing (scripts/setup.sh fetches it)")
    folder = SERVER.parents[1]
    print("building llama-server (once)", flush=True)
    subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                    "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_COMMON=ON",
                    "-DLLAMA_BUILD_TOOLS=ON", "-DLLAMA_BUILD_SERVER=ON"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "llama-server"], check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running llama-server; stops when the block ends."""

    def __init__(self, target, drafter, drafted):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = tempfile.TemporaryFile()
        command = [str(SERVER), "-m", str(target), "--port", self.url.rsplit(":", 1)[1], "-c", "2048", "-np", "1"]
        if drafter:
            command += ["--spec-type", "draft-dflash", "-md", str(drafter), "--spec-draft-n-max", str(drafted)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(600):
            if self.process.poll() is not None:
                self.log.seek(0)
                fail("llama-server did not start:\n" + self.log.read().decode(errors="replace")[-1500:])
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1).read()
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        fail("llama-server did not become ready within two minutes")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def answer(self, prompt, max_tokens):
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0,
                "cache_prompt": False}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            data = json.load(reply)
        return data["choices"][0]["message"]["content"], data["timings"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", type=pathlib.Path, default=ROOT / "deps/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    p.add_argument("--drafter", type=pathlib.Path, default=ROOT / "models/smollm2-135m-dflash.gguf")
    p.add_argument("--prompts", type=pathlib.Path, default=ROOT / "docs/examples/prompts.jsonl")
    p.add_argument("--limit", type=int, default=0)
    p.add_argument("--max-tokens", type=int, default=128)
    p.add_argument("--drafted", type=int, default=7, help="tokens drafted a cycle")
    a = p.parse_args()
    for path in (a.target, a.drafter, a.prompts):
        if not path.is_file():
            fail(f"{path}: no such file")
    bastion = ROOT / "build/release/bastion"
    if not bastion.exists():
        fail("build/release/bastion is missing (make build)")
    build_server()

    rows = [json.loads(line) for line in a.prompts.read_text().splitlines() if line.strip()]
    prompts = [row["turns"][0] if "turns" in row else row["prompt"] for row in rows][: a.limit or None]
    with Server(a.target, None, 0) as server:
        plain = [server.answer(prompt, a.max_tokens) for prompt in prompts]
    with Server(a.target, a.drafter, a.drafted) as server:
        drafted = [server.answer(prompt, a.max_tokens) for prompt in prompts]
    equal = sum(x[0] == y[0] for x, y in zip(plain, drafted))
    emitted = sum(t["predicted_n"] for _, t in drafted)
    accepted = sum(t.get("draft_n_accepted", 0) for _, t in drafted)
    # Every cycle emits what was accepted and one token more; the prefill draws the first token of an answer.
    cycles = emitted - len(prompts) - accepted
    with tempfile.TemporaryDirectory() as folder:
        first_turns = pathlib.Path(folder) / "prompts.jsonl"
        first_turns.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        out = pathlib.Path(folder) / "bench.json"
        subprocess.run([bastion, "bench", "--target", a.target, "--drafter", a.drafter, "--prompts", first_turns,
                        "--methods", "ar,chain", "--max-tokens", str(a.max_tokens), "--out", out], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ours = {m["name"]: m for m in json.loads(out.read_text())["methods"]}

    print(f"{len(prompts)} prompts, {emitted} tokens")
    print(f"llama.cpp, draft-dflash: tau {(emitted - len(prompts)) / max(cycles, 1):.3f}, "
          f"{equal} of {len(prompts)} texts equal to its plain decoding")
    print(f"bastion, chain:          tau {ours['chain']['tau']:.3f}")


if __name__ == "__main__":
    main()
