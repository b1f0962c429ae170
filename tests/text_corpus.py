"""About 300 texts that tokenizers get wrong: spaces, emoji, digits, line ends, accents composed and not."""

import unicodedata

_WORDS = [
    "Hello world",
    "The quick brown fox jumps over the lazy dog.",
    "don't can't I'll we've they're I'd it's 'tis DON'T I'LL",
    "Bonjour! Crème brûlée — 456 🙂",
    "Größe, Straße, Übermut",
    "naïve café résumé",
    "Привет, мир! Как дела?",
    "你好，世界。今天天气很好。",
    "こんにちは世界",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 family, 🇩🇪 flag, 👍🏽 thumb",
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))",
    "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}",
    "https://example.org/a?b=c&d=%20#e",
    '{"key": [1, 2.5, -3e10], "other": null}',
    "<|im_start|>user\nhi<|im_end|>",
    "<bos><start_of_turn>user</s><eos>",
    "<table><tr><td>1</td></tr></table>",
    "<0x0A> [multimodal] <unused7>",
    "A_B-C.D/E\\F|G~H`I",
    "...!!!???---===***",
    "∑∫√∞ ≠ ≤ ≥ ½ ² Ⅳ ٣",
    "zero\u200bwidth no\u00a0break thin\u2009space line\u2028sep",
    "ﬁ ligature Å angstrom \ufeffbom",
    "ſong 'ſ",
    "\u0000\u0001\u0004\u001c\u001f\u007f\u0085",
    "▁▁ literal ▁ marks",
    "ẞ İ ı ǅ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀 🜁",
]
_JOINTS = [" ", "  ", "\n", "\r\n", "\t", " \n ", "'", "1", "-", " \t\n\r\n  "]
_RUNS = [
    *(" " * count for count in (1, 2, 3, 4, 7, 8, 31, 32, 33, 64, 100, 1000)),
    *("\n" * count for count in (1, 2, 3, 31, 32, 65)),
    *("\t" * count for count in (1, 2, 31, 40)),
    *("\r\n" * count for count in (1, 2, 5)),
    *("1234567890123"[:count] for count in range(1, 8)),
    *("a" * count for count in (1, 2, 3, 17, 200)),
    *("é" * count for count in (1, 2, 9)),
    *("🙂" * count for count in (1, 2, 9)),
    *("!" * count for count in (1, 2, 9, 50)),
    *("=" * count for count in (3, 8, 79)),
]


def corpus() -> list[str]:
    texts = ["", *_WORDS, *_RUNS]
    texts += [f" {text}" for text in _WORDS] + [f"{text} \n" for text in _WORDS]
    texts += [f"x{run}y" for run in _RUNS] + [f"{run} 1" for run in _RUNS]
    texts += [joint.join(_WORDS[index : index + 3]) for index, joint in enumerate(_JOINTS)]
    texts += [unicodedata.normalize("NFD", text) for text in _WORDS[3:8]]
    texts += ["".join(_WORDS), "\n\n".join(_WORDS)]
    return list(dict.fromkeys(texts))


def stop_texts() -> list[str]:
    """Thirty of the texts, short enough for every piece of them to be tried as a stop string."""
    return [text[:48] for text in _WORDS if len(text) > 5][:30]
