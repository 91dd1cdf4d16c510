#!/usr/bin/env python3
"""Writes docs/api.md from include/gdn/gdn.h, so that the page and the header cannot differ.

    api_doc.py            writes docs/api.md
    api_doc.py --check    fails where docs/api.md is not what the header says
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/gdn/gdn.h"
PAGE = ROOT / "docs/api.md"

SECTION = re.compile(r"/\* -+ (.+) \*/$")
FUNCTION = re.compile(r"^(?:GDN_API|static inline) [^;{(]*?\b(gdn_[a-z0-9_]+)\(", re.MULTILINE)
CONVENTION = re.compile(r"  ([A-Z][a-z]+) {2,}(.*)")  # "  Memory    is the caller's, ...", continued far indented


def blocks(lines):
    """Runs of lines between blank ones, where a blank line inside braces does not end a run."""
    block, depth = [], 0
    for line in lines:
        depth += line.count("{") - line.count("}")
        if line.strip() == "" and depth == 0:
            if block:
                yield block
            block = []
        else:
            block.append(line)
    if block:
        yield block


def split_comment(block):
    """The block's leading comment as plain text lines, and the declarations after it."""
    if not block[0].startswith("/*"):
        return [], block
    end = next(i for i, line in enumerate(block) if line.rstrip().endswith("*/"))
    text = [re.sub(r"^(/\*| \*/?) ?", "", line.rstrip()) for line in block[: end + 1]]
    text[-1] = re.sub(r" ?\*/$", "", text[-1])
    return text, block[end + 1 :]


def prose(lines):
    """Comment text as Markdown: conventions become a list, other indented lines (formulas, tables) code, the rest
    paragraphs."""
    out, code, listed = [], False, False
    for line in lines:
        convention = CONVENTION.match(line)
        if convention and not listed:
            out.append("")
        listed = bool(convention) or (listed and line.startswith(" " * 12))
        indented = line.startswith("  ") and not listed
        if indented != code:
            out += ["", "```text"] if indented else ["```", ""]
            code = indented
        if convention:
            out.append(f"- **{convention[1]}** {convention[2]}")
        else:
            out.append("  " + line.strip() if listed else line[2:] if indented else line)
    if code:
        out.append("```")
    return out


def page():
    lines = HEADER.read_text().splitlines()
    start = lines.index('extern "C" {') + 2  # past the #endif
    end = next(i for i in range(start, len(lines)) if lines[i] == "#ifdef __cplusplus")

    # The header's opening comment, without its opening and closing marks.
    close = next(i for i, line in enumerate(lines) if line == " */")
    opening = [re.sub(r"^(/\*| \*) ?", "", line) for line in lines[:close]]

    body, index, title = [], [], "Version"
    body += ["## " + title, ""]
    for block in blocks(lines[start:end]):
        section = SECTION.match(block[0])
        if section:
            title = section.group(1)
            body += ["## " + title, ""]
            block = block[1:]
            if not block:
                continue
        comment, declarations = split_comment(block)
        names = FUNCTION.findall("\n".join(declarations))
        for name in names:
            body += [f'<a id="{name}"></a>']
            index.append((title, name))
        if names:
            body += [""]
        if comment:
            body += prose(comment) + [""]
        if declarations:
            body += ["```c"] + declarations + ["```", ""]

    head = [
        "# API",
        "",
        "<!-- Written by scripts/api_doc.py from include/gdn/gdn.h; change the header instead. -->",
        "",
        "What `#include <gdn/gdn.h>` declares, in its order; `<gdn/gdn_cuda.h>` has the calls with a `cudaStream_t`.",
        "[algorithm.md](algorithm.md) derives what is computed, [numerics.md](numerics.md) says how it is rounded,",
        "[environment.md](environment.md) lists the variables that are read.",
        "",
    ]
    head += prose(opening) + ["", "## Functions", ""]
    sections = {}
    for title, name in index:
        sections.setdefault(title, []).append(name)
    for title, names in sections.items():
        links = ", ".join(f"[`{name}`](#{name})" for name in dict.fromkeys(names))
        head += [f"- {title}: {links}"]
    text = "\n".join(head + [""] + body).rstrip() + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


def main():
    text = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/api.md is not what include/gdn/gdn.h says; run scripts/api_doc.py")
        print("docs/api.md is current")
    elif sys.argv[1:]:
        sys.exit(f"api_doc.py: unknown argument '{sys.argv[1]}'; allowed is --check")
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
