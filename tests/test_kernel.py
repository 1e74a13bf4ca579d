from __future__ import annotations

import subprocess
import sys

MODULE = """
import sys
import semistream.kernel as k
if sys.argv[1]:
    k._fingerprint = lambda: sys.argv[1]

@k.kernel
def doubled(x):
    return 2 * x

assert doubled(21) == 42
print(sum(doubled.stats.cache_hits.values()))
"""


def test_kernels_are_cached_until_any_file_of_the_package_changes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MODULE)

    def hits(fingerprint: str) -> int:
        done = subprocess.run(
            [sys.executable, script, fingerprint], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert [hits(""), hits("")] == [0, 1]
    assert [hits("another release"), hits("another release")] == [0, 1]
