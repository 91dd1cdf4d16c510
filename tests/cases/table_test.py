#!/usr/bin/env python3
"""Every test that README.md's table names exists in the file it names.   table_test.py <tests folder>"""

import pathlib
import re
import sys

tests = pathlib.Path(sys.argv[1])
table = (tests / "cases" / "README.md").read_text(encoding="utf-8")
sources = {path.stem: path.read_text(encoding="utf-8") for path in tests.rglob("test_*.c")}
named = re.findall(r"`(test_\w+): (\w+)`", table)
missing = [f"{file}: {test}" for file, test in named
           if not re.search(rf"\bcmocka_unit_test\w*\({test}\b", sources.get(file, ""))]
for name in missing:
    print("no such test:", name)
if missing or len(named) < 50:
    sys.exit(1)
print(f"{len(named)} names of the table are tests")
