#!/usr/bin/env python3
"""What the documents say of the tree is true:

  - README.md's C program is examples/prefill.c
  - docs/api.md is what the header says
  - every file that a document names exists
  - every GDN_* variable that the library reads is in docs/environment.md, and no other
  - every option of the build is in cmake/README.md
  - every folder but docs/ has a README.md
  - every formula of docs/algorithm.md has a test that is named after it, and no test has another's number
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("core", "backend_cpu", "backend_cuda", "include", "tools", "tests", "examples", "bench", "docs", "scripts",
           "cmake", "bindings", ".ci")
# Named in prose though they are not in the tree: what a build or an install makes, and patterns.
MADE = re.compile(r"^(build|lib|bin|share|usr)/|[*<>{$]|^docs/api\.md#")
failures = []


def fail(text):
    failures.append(text)


def documents():
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not parts[0].startswith(("build", ".")):
            yield path


def check_readme_program():
    program = (ROOT / "examples/prefill.c").read_text()
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if program not in blocks:
        fail("README.md: the C program is not examples/prefill.c")


def check_api_page():
    result = subprocess.run([sys.executable, ROOT / "scripts/api_doc.py", "--check"], capture_output=True, text=True)
    if result.returncode != 0:
        fail(result.stderr.strip())


def exists(name, page):
    """Whether a file is there, named from the root, from the page's folder, or as an #include names it."""
    return any((base / name).exists() for base in (ROOT, page.parent, ROOT / "include"))


def check_named_files():
    for page in documents():
        text = page.read_text()
        where = page.relative_to(ROOT)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not exists(target, page):
                fail(f"{where}: link to {target}, which does not exist")
        words = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        words += re.findall(r"(?<![\w./`-])((?:%s)/[\w./-]*\w)" % "|".join(map(re.escape, FOLDERS)), text)
        for word in dict.fromkeys(words):
            name = word.rstrip(".,:;")
            path = name.split("/")[0] in FOLDERS and "/" in name
            file = re.search(r"\w\.(c|h|cu|cuh|py|sh|md|cmake|in|map|symbols|txt|json)$", name)
            if (path or file) and not MADE.search(name) and not exists(name, page):
                # A bare file name may be anywhere.
                if "/" in name or not any(ROOT.rglob(name)):
                    fail(f"{where}: names {name}, which does not exist")


def check_environment():
    read = set(re.findall(r'"(GDN_[A-Z_]+)"', (ROOT / "core/environment.c").read_text()))
    told = set(re.findall(r"^\| `(GDN_[A-Z_]+)` \|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE))
    for name in sorted(read ^ told):
        fail(f"docs/environment.md and core/environment.c differ on {name}")


def check_options():
    text = (ROOT / "cmake/GdnOptions.cmake").read_text()
    options = set(re.findall(r"(?:option|gdn_tristate|set)\((GDN_[A-Z_]+) ", text))
    told = set(re.findall(r"`(GDN_[A-Z_]+)`", (ROOT / "cmake/README.md").read_text()))
    for name in sorted(options - told):
        fail(f"cmake/README.md does not say what {name} does")


def check_folders():
    for name in FOLDERS:
        folder = ROOT / name
        if name not in (".ci", "docs") and folder.is_dir() and any(folder.iterdir()) and not (folder / "README.md").exists():
            fail(f"{name}/ has no README.md")


def check_formulas():
    told = re.findall(r"^\*\*(F\d+)\.\*\*", (ROOT / "docs/algorithm.md").read_text(), re.MULTILINE)
    tested = []
    for path in (ROOT / "tests/formulas").glob("*.c"):
        tested += re.findall(r"cmocka_unit_test\((F\d+)_", path.read_text())
    if not told or sorted(told) != sorted(tested):
        fail(f"docs/algorithm.md and tests/formulas differ: {sorted(set(told) ^ set(tested)) or 'a number comes twice'}")


for check in (check_readme_program, check_api_page, check_named_files, check_environment, check_options, check_folders,
              check_formulas):
    try:
        check()
    except OSError as error:
        fail(str(error))
for line in failures:
    print("FAILED:", line)
print(f"{len(failures)} failures in {len(list(documents()))} documents")
sys.exit(1 if failures else 0)
