"""mailbox.pml, verified by spin: every interleaving of a small fleet, not a sample of them.

    spin -a -DCRASHES=1 mailbox.pml && gcc -DSAFETY -o pan pan.c && ./pan

A fault that is put in by hand (-DNO_...) must be found, or the model proves nothing.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("mailbox.pml")
#: What may go wrong at most once each: a killed process, a holder that is stopped until its
#: session is ended and then goes on, a broker that is wiped.
TROUBLE = ("CRASHES=1", "STALLS=1", "LOSSES=1", "RELEASES=0")

_missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(
    bool(_missing),
    reason=f"THE MODEL WAS NOT VERIFIED: {' and '.join(_missing)} not installed (.ci/run does)",
)


def verify(folder: Path, *defines: str) -> str:
    """What spin's verifier says: "" when nothing is wrong, else its first error."""
    liveness = "LIVENESS" in defines
    names = [f"-D{name}" for name in defines]
    _run(folder, "spin", "-a", *names, str(MODEL))
    # Compiled for the sum of both: most runs are shorter than a compiler that tries hard.
    kind = ["-O1", "-DNFAIR=3"] if liveness else ["-O0", "-DSAFETY"]
    _run(folder, "gcc", "-w", *kind, "-o", "pan", "pan.c")
    fair = ["-a", "-f"] if liveness else []
    said = _run(folder, "./pan", "-m100000", "-n", *fair)
    assert "max search depth too small" not in said and "out of memory" not in said
    found = re.search(r"^pan:1: (.*) \(at depth", said, re.MULTILINE)
    errors = re.search(r"errors: (\d+)", said)
    assert errors is not None and (errors[1] != "0") == (found is not None), said
    return found[1] if found else ""


def _run(folder: Path, *argv: str) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{argv[0]}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("size", [(), ("THREADS=2", "MAIL=3")], ids=["one thread", "two threads"])
def test_no_wakeup_is_lost(tmp_path: Path, size: tuple[str, ...]) -> None:
    """Without any sweeper nothing is left when nobody has anything to do."""
    assert verify(tmp_path, "NO_SWEEPER", *size) == ""


def test_a_thread_has_one_writer(tmp_path: Path) -> None:
    """No write of an older epoch after a newer one, no message twice, whatever goes wrong."""
    assert verify(tmp_path, *TROUBLE) == ""


@pytest.mark.parametrize("trouble", [("CRASHES=1",), ("STALLS=1", "LOSSES=1")], ids="+".join)
def test_what_is_accepted_is_done_at_last(tmp_path: Path, trouble: tuple[str, ...]) -> None:
    """As long as nobody who can go on is kept from it for ever (weak fairness)."""
    assert verify(tmp_path, "LIVENESS", "RELEASES=0", *trouble) == ""


#: Each fault, where it shows, and as what.
SEEDED: dict[str, tuple[tuple[str, ...], str]] = {
    # A turn that ends looks for no mail that came while it ran.
    "NO_SECOND_LOOK": (("NO_SWEEPER", "RELEASES=0"), "assertion violated (ended=="),
    # It looks before its commit only: two slots skip each other's threads.
    "NO_LAST_LOOK": (
        ("NO_SWEEPER", "RELEASES=0", "THREADS=2", "MAIL=3"),
        "assertion violated (ended==",
    ),
    # A barrier writes whatever the thread's epoch is by now.
    "NO_FENCE": (("STALLS=1",), "assertion violated (e>=written"),
    # A claim reads the mailbox before it has the row of a turn that is just committing.
    "NO_ROW_LOCK": ((), "assertion violated (mail["),
    # Nobody looks for claims whose holder is gone.
    "NO_ORPHANS": (("LIVENESS", "CRASHES=1", "RELEASES=0"), "acceptance cycle"),
}


@pytest.mark.parametrize("fault", SEEDED)
def test_a_fault_put_in_by_hand_is_found(tmp_path: Path, fault: str) -> None:
    """Each for the reason that it is a fault."""
    setting, found = SEEDED[fault]
    assert verify(tmp_path, fault, *setting).startswith(found)
