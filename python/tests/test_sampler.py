import numpy as np
import pytest

from draftmill import TokenBudgetSampler


def test_batches_stay_within_the_budget_and_hold_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    batches = list(TokenBudgetSampler(lengths, 100, seed=3))
    assert all(lengths[batch].sum() <= 100 for batch in batches)
    assert sorted(row for batch in batches for row in batch) == list(range(200))


def test_a_long_row_comes_alone() -> None:
    assert list(TokenBudgetSampler([5, 50, 5], 10, shuffle=False)) == [[0], [1], [2]]


def test_order_depends_on_seed_and_epoch() -> None:
    sampler = TokenBudgetSampler([3] * 50, 10, seed=1)
    first = list(sampler)
    assert first == list(TokenBudgetSampler([3] * 50, 10, seed=1))
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_replicas_share_the_batches() -> None:
    parts = [list(TokenBudgetSampler([1] * 10, 1, rank=rank, num_replicas=3)) for rank in range(3)]
    assert [len(part) for part in parts] == [3, 3, 3] == [
        len(TokenBudgetSampler([1] * 10, 1, rank=rank, num_replicas=3)) for rank in range(3)
    ]
    rows = [row for part in parts for batch in part for row in batch]
    assert len(rows) == len(set(rows)) == 9
    with pytest.raises(ValueError, match="rank"):
        TokenBudgetSampler([1], 1, rank=3, num_replicas=3)
