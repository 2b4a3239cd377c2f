"""Noise once at the site: a site's moments with noise, from which all its rounds are computed.

With placement `site`, a method that reads its site's records through moments only
(`secagg.contracts.MomentsOnly`) never gets them. The site adds noise once to n and M = sum z z'
(`secagg.models.common.clipped_moments`), and repairs the noisy M, so that records with these
moments exist. It gives the method such records (`secagg.models.common.surrogate_records`). All that
any round of any method computes from these is as private as one release of n and M. So neither the
number of rounds nor what they send costs any budget (Dwork and Roth 2014, proposition 2.1; the
rotation test of tests/contracts/test_reads_moments.py).

The draw is charged once. The seed of its noise is in the site's ledger, under a key that depends on
records, columns, clipping and noise, but not on method and round. A later job with the same key
gets the same seed and so the same noisy moments, and costs nothing
(`secagg.privacy.ledger.ledger`).

Inference that knows the noise. With the records, a method also gets the noisy moments before their
repair, and the noise's variance (`SiteRecords.noisy`). A method can use them
(`secagg.models.sparse_bayes.latent.moments`).

Guarantees
    * The integers that the noise is added to are exact sums of clipped records on a grid. One
      record changes them by at most the declared sensitivity. The noise is discrete and drawn on
      the same grid.
    * The method, the count of records and the site's own result depend on the records only through
      the noisy integers.
    * The seed is on disk before the noise is drawn from it. A process that is killed in between
      finds it again, and draws the same noise.

Not protected: how long the site computes. Which sites take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from secagg.contracts import (
    Body,
    Field,
    Kind,
    NoisyMatrix,
    PublicFacts,
    RecordCount,
    SiteRecords,
    Spec,
    Stage,
    Update,
)
from secagg.contracts.noise import SITE_MOMENTS, Clip, Noise
from secagg.core.randomness import RandomBytes
from secagg.models.common.clipped_moments import (
    counted_moments_sensitivity,
    counted_moments_variances,
    largest_sum,
    largest_values,
    records_moments,
)
from secagg.models.common.noisy_moments import NoisyMoments, noisy_moments, repaired
from secagg.models.common.surrogate_records import surrogate_records
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.sessions.fixed_point import add_noise, decode, encode_cut_sum
from secagg.sessions.sum_plan import plan_sum

WEIGHTS = "weights"
"""Of the count's sum: the sum of whole records' weights."""


def site_moments_stage(public: PublicFacts, count_share: float) -> Stage:
    """Return what is drawn: n and M, for records that are clipped as `public` says."""
    assert public.clip is not None
    sees = "nothing: noise is added to each site's moments, which it keeps"
    moved = counted_moments_sensitivity(public.clip, len(public.variables), count_share)
    return Stage(SITE_MOMENTS, site_moments_spec(public), 1, sees, moved)


def site_moments_spec(public: PublicFacts) -> Spec:
    """Return the fields that are drawn."""
    assert public.clip is not None
    p, bits, rows = len(public.variables), 2 * public.clip.grid_bits, float(public.max_rows)
    largest = largest_sum(public.max_rows, public.clip)
    return (
        Field("records", (1,), rows, bits, Kind.COUNT),
        Field("moments", ((p + 1) * (p + 2) // 2,), largest, bits, Kind.PSD),
    )


def site_moments_facts(public: PublicFacts) -> Body:
    """Return what else of the noise is part of the key of the draw: the weights.

    With the same variance and other weights, which `count_share` chooses, one seed would give two
    releases of the same moments whose noise differs by a known factor.
    """
    return {"weights": list(public.noise[SITE_MOMENTS].weights)}


@dataclass(frozen=True)
class SiteMoments:
    """A site's noisy moments, and records for the method.

    site: the site's records without their values
    """

    noisy: NoisyMoments
    site: SiteRecords
    public: PublicFacts

    @property
    def counts(self) -> Update:
        """The noisy number of records, and of whole records the noisy sum of their weights.

        They may be fractional or negative.
        """
        found = {"records": np.array([self.noisy.counted])}
        if self._clip.whole:
            found[WEIGHTS] = np.array([self.noisy.matrix[0, 0]])
        return found

    @cached_property
    def repaired(self) -> SiteRecords:
        """Records with the noisy, repaired moments."""
        records = min(max(self.noisy.records, 1), self.public.max_rows)
        weights, n = float(self.noisy.matrix[0, 0]), self.noisy.counted
        largest = largest_values(self.public.variables, self._clip, weights, n)
        values = surrogate_records(repaired(self.noisy).matrix, records, largest)
        constant = 1 / float(self.noisy.scale[0])
        noisy = NoisyMatrix(self.noisy.matrix, self.noisy.variance, constant)
        return replace(self.site, values=values, noisy=noisy)

    @property
    def _clip(self) -> Clip:
        assert self.public.clip is not None
        return self.public.clip


def draw_site_moments(
    parts: Sequence[SiteRecords], public: PublicFacts, random: RandomBytes
) -> SiteMoments:
    """Return the moments of a site's records with the noise that `random` determines.

    parts: the site's records, each part at most `max_rows` of them
    """
    noise = public.noise[SITE_MOMENTS]
    plan = plan_sum(site_moments_spec(public), 1, noise=noise)
    vector = encode_cut_sum(plan, [
        {"records": np.array([float(len(part.values))]),
         "moments": records_moments(part, public.clip)}
        for part in parts
    ])  # fmt: skip
    variance = noise.site_variance(1)
    add_noise(plan, vector, sample_weighted(variance, noise.weights, plan.noised, random))
    drawn, _ = decode(plan, vector)
    of_count, of_moments = counted_moments_variances(noise)
    counted = RecordCount(float(drawn["records"][0]), of_count)
    assert public.clip is not None
    noisy = noisy_moments(drawn["moments"], public, of_moments, counted, public.clip.constant)
    nothing = np.zeros(len(public.columns))
    site = replace(
        parts[0], values=parts[0].values[:0], incomplete=0, outside=nothing, clipped_share=nothing,
        complete=np.zeros(0, dtype=np.bool_), remarks=(), surplus=0,
    )  # fmt: skip
    return SiteMoments(noisy, site, public)


def weights_variance(noise: Noise, clip: Clip) -> float:
    """Return the variance of a site's sum of weights before it is limited to the count."""
    return 2 * counted_moments_variances(noise)[1] / clip.constant**4


def count_variance(noise: Noise, clip: Clip) -> float:
    """Return the variance of the noisy count: (1) of `secagg.models.common.noisy_moments`."""
    of_count, _ = counted_moments_variances(noise)
    if clip.whole:
        return of_count
    of_first = weights_variance(noise, clip)
    return of_count * of_first / (of_count + of_first)
