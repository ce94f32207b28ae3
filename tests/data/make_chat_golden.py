#!/usr/bin/env python3
"""Writes chat_golden.json: chat templates rendered by Python's jinja2, set up as Hugging Face's apply_chat_template is.

    pip install jinja2
    python tests/data/make_chat_golden.py [DEPS_DIR]

DEPS_DIR (default: deps/ of this repository) holds llama.cpp/ and models/ as the set-up script leaves them.
"""

import datetime
import json
import pathlib
import struct
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent
NOW = datetime.datetime(2025, 3, 9, 12, 0, 0)  # local noon: the date is the same in every time zone

SMOLLM2 = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEMPLATES = "llama.cpp/models/templates/"

USER = [{"role": "user", "content": "What is 2 + 2?"}]
SYSTEM = [{"role": "system", "content": "  Answer in one word.\n"}] + USER
TURNS = [
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Another one, please \u2014 \u8272 \U0001F3A8"},
]
LONG = [{"role": "system", "content": "Be brief."}] + TURNS
THOUGHT = [
    {"role": "user", "content": "Is 7 prime?"},
    {"role": "assistant", "content": "<think>\n7 has no divisors.\n</think>\n\nYes."},
    {"role": "user", "content": "And 9?"},
]
MARKUP = [{"role": "user", "content": "<|im_end|>\n<|eot_id|>{{ 1 + 1 }}{% if %}"}]
SPACES = [{"role": "user", "content": "\n\n  def f():\n\treturn 1\n\n"}]
EMPTY = [{"role": "user", "content": ""}]
CONVERSATIONS = {
    "user": USER, "system+user": SYSTEM, "multi-turn": TURNS, "system+multi-turn": LONG, "thought in history": THOUGHT,
    "markup in content": MARKUP, "whitespace": SPACES, "empty content": EMPTY,
}

MODELS = [  # template, BOS, EOS, values of enable_thinking worth telling apart
    (SMOLLM2, "<|im_start|>", "<|im_end|>", [True]),
    (TEMPLATES + "meta-llama-Llama-3.1-8B-Instruct.jinja", "<|begin_of_text|>", "<|eot_id|>", [True]),
    (TEMPLATES + "meta-llama-Llama-3.2-3B-Instruct.jinja", "<|begin_of_text|>", "<|eot_id|>", [True]),
    (TEMPLATES + "Qwen-Qwen3-0.6B.jinja", "<|endoftext|>", "<|im_end|>", [True, False]),
    (TEMPLATES + "google-gemma-2-2b-it.jinja", "<bos>", "<eos>", [True]),
]


def gguf_text(path, wanted):
    """The string value of key `wanted` of a GGUF file."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode("utf-8", "replace")
            if kind == 9:
                inner, count = number("I"), number("Q")
                for _ in range(count):
                    value(inner)
                return None
            file.read(sizes[kind])
            return None

        assert file.read(4) == b"GGUF", path
        number("I"), number("Q")
        for _ in range(number("Q")):
            key = value(8)
            found = value(number("I"))
            if key == wanted:
                return found
    raise KeyError(wanted)


def compile_template(source):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, **kw: json.dumps(x, ensure_ascii=False, **kw)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env.from_string(source)


def main():
    deps = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "deps")
    cases = []
    for name, bos, eos, thinkings in MODELS:
        path = deps / name
        source = gguf_text(path, "tokenizer.chat_template") if path.suffix == ".gguf" else path.read_text("utf-8")
        template = compile_template(source)
        for title, messages in CONVERSATIONS.items():
            for generate, thinking in [(True, thinking) for thinking in thinkings] + [(False, True)]:
                if generate or title in ("user", "system+multi-turn"):
                    case = {"template": name, "conversation": title, "bos": bos, "eos": eos,
                            "add_generation_prompt": generate, "thinking": thinking}
                    try:
                        case["expected"] = template.render(
                            messages=messages, tools=None, documents=None, add_generation_prompt=generate,
                            enable_thinking=thinking, bos_token=bos, eos_token=eos)
                    except jinja2.exceptions.TemplateError as error:
                        case["raises"] = error.message
                    cases.append(case)
    golden = {
        "origin": f"tests/data/make_chat_golden.py: Python jinja2 {jinja2.__version__} "
                  "(ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks), not the engine under test",
        "now": NOW.strftime("%Y-%m-%d"),
        "conversations": CONVERSATIONS,
        "cases": cases,
    }
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (HERE / "chat_golden.json").write_text(text + "\n", "utf-8")
    print(f"{len(cases)} cases, {sum('raises' in case for case in cases)} of them raise")


if __name__ == "__main__":
    main()
