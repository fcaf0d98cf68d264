"""Finals with a winner that passed its checks: who fails is disqualified, and the next one wins."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from autogemm.model.certificate import Certificate, Check, Verdict
from autogemm.model.finals import without_winner
from autogemm.model.kernel import Candidate
from autogemm.model.outcome import Disqualified, Finals, Status
from autogemm.support.errors import CertificationError
from autogemm.tuning.task.request import TuneRequest
from autogemm.verify import Certifier


def certified(
    certifiers: Mapping[str, Certifier],
    finals: Finals,
    candidates: Sequence[Candidate],
    request: TuneRequest,
    keep: Callable[[str, Certificate], None],
) -> tuple[Finals, Certificate]:
    """The finals with a winner that passed, and its certificate.

    Who fails is disqualified and the next one checked; ``keep`` gets each kernel's sha256 and
    certificate as it is made, also of those that the finals themselves disqualified. Raises
    CertificationError when nobody is left.
    """
    by_sha256 = {candidate.source.sha256: candidate for candidate in candidates}
    for lost in finals.disqualified:
        if lost.status is Status.INACCURATE:
            continue  # right all the same: elsewhere it may win
        keep(lost.kernel_sha256, failed_in_finals(lost))
    for _ in finals.entries:
        winner = finals.winner
        what = f"{finals.num_checks} more results, every element compared with the reference"
        before = [Check("finals", Verdict.PASSED, what)] if finals.num_checks else []
        candidate = by_sha256[winner.kernel_sha256]
        certifier = certifiers[candidate.config.family]
        certificate = certifier.certify(candidate, request.problem, before)
        keep(winner.kernel_sha256, certificate)
        if certificate.verdict is not Verdict.FAILED:
            return finals, certificate
        if len(finals.entries) == 1:
            break
        finals = without_winner(finals, certificate.reason, request.seed, request.measure.objective)
    raise CertificationError(
        f"no finalist passes the checks that a winner must pass, the last one: "
        f"{certificate.reason}; all are stored (autogemm db show), --no-certify leaves the checks "
        "out"
    )


def failed_in_finals(lost: Disqualified) -> Certificate:
    """Of a kernel that was wrong, or crashed, among the finalists."""
    found = Check("finals", Verdict.FAILED, lost.reason)
    return Certificate((found,), datetime.now(UTC))
